/** What the instruments' JavaScript is checked against; nothing here reaches a page. */

/** What anywidget hands over, or the static host in its place: traits by name. */
export interface Model<State> {
  get<Name extends string & keyof State>(name: Name): State[Name];
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, heard: () => void): void;
  off?(event: string, heard: () => void): void; // a page has no kernel that could end an instrument
}

/** What a function that draws an instrument gets; it returns the function that stops it. */
export interface Place<State> {
  model: Model<State>;
  el: HTMLElement;
  tell?: (results: Results) => void; // only the static host listens, for the sentences of its page
}
/** What sentences can say of an instrument, each result under its name. */
export type Results = Record<string, string>;
/** An instrument that the static host has woken, with what it told last; `heard` are called at each change. */
export interface Awake {
  place: HTMLElement;
  el: HTMLElement;
  // biome-ignore lint/suspicious/noExplicitAny: the host knows no instrument's traits
  model: Model<any>;
  told: { results: Results };
  heard: (() => void)[];
}
/** Of a number in a sentence. A whole number with a great `max` is doubled and halved. */
export interface Bounds {
  label: string;
  min: number;
  max: number;
  whole: boolean;
}
/** A formula that sentences may use: its variables with label, least and most, what follows from them, and how some of that is drawn. */
export interface Formula {
  variables: Record<string, [string, number, number]>;
  results: (values: Record<string, number>) => Results;
  drawn?: Record<string, (values: Record<string, number>, told: string) => Element>;
}
/** Where two hands of a clock point, in radians, and by how much they turn a position. */
export interface Hands {
  query: number;
  key: number;
  rate: number;
}
/** Where a number in a sentence comes from. */
export interface Source {
  bounds: (trait: string) => Bounds | null;
  get: (trait: string) => number;
  set: (trait: string, value: number) => void;
  results: () => Results;
  drawn?: (of: string, told: string) => Element | undefined;
  listen: (then: () => void) => void;
  speaks: boolean;
}
// biome-ignore lint/suspicious/noExplicitAny: the host knows no instrument's traits
export type Render = (place: Place<any>) => () => void;

/** Attributes of an element: `text` is its content, `on…` are listeners. */
// biome-ignore lint/suspicious/noExplicitAny: strings, numbers, truth values, null and listeners
export type Attributes = Record<string, any>;

export interface NumberOptions {
  value: number;
  min: number;
  max: number;
  step?: number;
  whole?: boolean;
  changed: (value: number) => void;
  said: HTMLElement;
  [attribute: string]: unknown;
}
export interface ChoiceOptions {
  value: string | number;
  options: (string | number)[][];
  changed: (value: string) => void;
  [attribute: string]: unknown;
}

/** A control under its label, and what shows in it the value that its trait has. */
export interface Control {
  input: HTMLInputElement | HTMLSelectElement;
  row: HTMLElement;
  refresh: () => void;
}

export interface Playground {
  tokens: string[];
  q: number[][];
  k: number[][];
  v: number[][];
  scale: boolean;
  temperature: number;
  mask: "none" | "causal" | "valid length";
  valid_len: number;
  query: number;
  controls: string[];
}

export interface Worked {
  words: string[];
  asking: string;
  asked: string[];
  given: string[];
  q: number[];
  k: number[][];
  v: number[][];
  scale: boolean;
  seen: boolean[];
  second: [number[], number[][], number[][]] | null;
  W_o: number[][] | null;
  step: number;
  choices: string[];
}

export interface Costs {
  num_hiddens: number;
  num_heads: number;
  num_kv_heads: number;
  num_layers: number;
  num_tokens: number;
  batch_size: number;
  bytes_per_number: number;
  variant?: string;
  latent_size?: number;
  rotary_size?: number;
  absorbed?: boolean;
  shared_size?: number;
  overlap?: number;
  num_shared?: number;
  num_chosen?: number;
  rank?: number;
  per_channel?: boolean;
  counted?: number[];
}
/** A part of a variant's costs, in symbols and counted. */
export type Part = [string, bigint];
/** What a variant can be set to: bounds of a number, or words for false and true. */
export type Setting = [string, keyof Costs, string, number, number] | [string, keyof Costs, string, string, string];
export type Row = [string, string, string, string];
export type Ratio = (one: bigint, all: bigint) => string;

/** Two choices, and the rows of numbers that they choose from. */
export interface Served {
  models: [string, string, ...(number | boolean)[]][];
  chips: [string, ...(number | null)[]][];
  model_1: string;
  attention_1: string;
  machine_1: string;
  precision_1: string;
  kernel_1: string;
  num_chips_1: number;
  batch_size_1: number;
  num_tokens_1: number;
  model_2: string;
  attention_2: string;
  machine_2: string;
  precision_2: string;
  kernel_2: string;
  num_chips_2: number;
  batch_size_2: number;
  num_tokens_2: number;
}

/** The drawing of the layer: parts that light each path or letters. */
export interface DrawnLayer {
  size: number[];
  beside: Record<string, number[]>;
  paths: [string[], string, string, string][];
  letters: [string[], string, number, number][];
}
/** A cell of a table that can be sorted. */
export type Value = number | string | null;
export interface Sortable {
  caption: string;
  first: string;
  rows: string[];
  names: string[];
  values: Value[][]; // by column, then row
  beside: Record<string, Record<string, Value[]>>;
  about: Record<string, string>;
  lit?: Record<string, string[]>[];
  drawing?: DrawnLayer;
  sort: string;
  falling: boolean;
  row: string;
}
export interface Hunt {
  caption: string;
  checks: string[];
  mistakes: string[];
  catches: number[][]; // by check, the numbers of mistakes
  about: Record<string, string>;
  order: number[]; // by layer, the number of its mistake
  layer: number;
  done: number[];
  struck: number[];
}
export interface Roof {
  machines: [string, number, number, number][];
  machine: string;
  num_hiddens: number;
  num_heads: number;
  variant: string;
  num_kv_heads: number;
  latent_size: number;
  rotary_size: number;
  num_tokens: number;
  batch_size: number;
  phase: string;
  kernel: string;
  causal: boolean;
  step: string;
}
/** A step of the layer, counted, with the least time it takes and what decides that. */
export interface StepOnRoof {
  name: string;
  flops: bigint;
  moved: bigint;
  intensity: number;
  seconds: number;
  bound: string;
}

export interface Stepper {
  batch_size: number;
  num_tokens: number;
  num_hiddens: number;
  num_heads: number;
  step: number;
  skip_permute: boolean;
  cell: number;
  compact: boolean;
  colours: string[];
}
/** The sizes of the stepper, with what follows from them. */
export interface Sizes {
  B: number;
  N: number;
  D: number;
  h: number;
  d: number;
  skip: boolean;
  cell: number;
  step: number;
}
/** An array of the stepper: which cells memory holds, and how they are read. */
export interface Strided {
  shape: number[];
  strides: number[];
  memory: number[];
  copied: boolean;
}
export interface Stage extends Strided {
  name: string;
  code: string;
  axes: string;
}

export interface Explorer {
  sizes: [number, number, number, number, number];
  packed: string;
  sums: string;
  seen: string;
  ramp: string[];
  ramps: string[][];
  pictures?: string[];
  picture_size?: [number, number, number];
  span?: number[];
  groups?: number[][];
  gates?: number[];
  gate_sizes?: number[];
  layer_names?: string[];
  query_tokens: string[][];
  key_tokens: string[][];
  layer: number;
  example: number;
  head: number;
  query: number;
  key_start: number;
  top: number;
  threshold: number;
  off: number[];
  locked: number[];
  note: string;
}
/** The weight of a query for a key, as the explorer codes it. */
export type Read = (q: number, k: number) => number;

/* The playground's functions and parts. */
export type Key = "scores" | "mask" | "weights" | "output";
export interface Built {
  fields: (() => void)[];
  cells: Record<string, { formula: HTMLElement; rows: HTMLElement[]; numbers: HTMLElement[][] }>;
  radios: HTMLInputElement[];
  names: string[];
  form: { scale: HTMLInputElement; mask: HTMLSelectElement; length: HTMLElement };
  sum: HTMLElement;
  planes: { picture: SVGElement; draw: (points: PointInPlane[]) => void }[];
}
/** A point as a plane shows it: `at` two numbers, the radius of its disc, its name there and for a screen reader. */
export interface PointInPlane {
  at: number[];
  kind: string;
  label: string;
  said: string;
  facts: string;
  hidden?: boolean;
  size?: number;
}
export interface PlaneOptions {
  title: string;
  css: (name: string) => string;
  count: number;
  bound: number;
  moved: (i: number, to: number[]) => void;
}
export type Digits = (x: number) => string;
export type RealField = (read: () => number, options: { min: number; max: number; step?: number; whole?: boolean; changed: (value: number) => void } & Attributes) => HTMLInputElement;
export type Named = (text: string, scope: string, attributes?: Attributes) => HTMLElement;
export type StageTable = (number: number, title: string, key: string, ...parts: Node[]) => { frame: HTMLElement; table: HTMLElement };
export type RowsOf = (key: string, filled: (t: number) => Node[]) => HTMLElement;
export type Grid = (number: number, title: string, key: string, columns: string[], corner: string) => HTMLElement;
export type VectorField = (name: "q" | "k" | "v", t: number, c: number) => HTMLElement;
export type TraitField = (name: "temperature" | "valid_len", label: string, bounds: { min: number; max: number; step?: number; whole?: boolean }) => HTMLElement;
export type Fill = (cell: HTMLElement, value: number, seen: boolean, key: Key) => void;
export type Sentence = (row: number[], mask: boolean[], query: number) => string;
export type Written = (row: number[], mask: boolean[], result: number[]) => string[];

/* The stepper's functions. */
export type Ints = number[];
export type Name = "batch_size" | "num_tokens" | "num_hiddens" | "num_heads";
export type ViewStrides = (shape: Ints, strides: Ints, wanted: Ints) => Ints | null;
export type Offset = (index: Ints, strides: Ints) => number;
export type Reshape = (from: Strided, wanted: Ints) => Strided;
export type Permute = (from: Strided) => Strided;
export type Reached = (sizes: Sizes, token: number, wrongSplit: boolean, wrongMerge: boolean) => Ints;
export type TokenOf = (head: number, row: number) => number;
export type Changes = (head: number, row: number) => boolean;
export type CellButton = (cell: number, now: Sizes, place: string, position: number) => HTMLElement;
export type Walk = (frame: HTMLElement, width: () => number) => void;
export type Refill = (frame: HTMLElement, ...children: HTMLElement[]) => void;
export type Matrices = (stage: Stage, now: Sizes) => HTMLElement[];
export type Strip = (title: string, memory: Ints, now: Sizes) => HTMLElement;
export type Why = (stage: Stage, now: Sizes) => string;
export type Judge = (text: string, sizes: Sizes) => string;
export type Resize = (name: string, value: number) => void;
export type How = (stage: Stage, i: number) => string;

/* The explorer's functions and parts. */
export type Maybe = number | null;
export type Codes = Record<number, string>;
export type Weight = (head: number, q: number, k: number) => number;
export type InWords = (code: number, digits?: number) => string;
export type Shade = (code: number, head?: number) => number[] | undefined;
export type Share = (code: number) => number;
export type Gate = (head: number, q: number) => number;
export type About = (head: number, q: number) => string;
export type Bar = (from: number, to: number) => HTMLElement;
export type Tokens = (name: "query_tokens" | "key_tokens") => string[];
export type Ranked = (read: Read, q: number) => [number, number][];
export type Spoken = (read: Read, q: number, chosen: Maybe) => string;
export type Window = (at: number, length: number) => Ints;
export type Paint = (canvas: HTMLCanvasElement, read: Read, qs: Ints, ks: Ints, size: number, head?: number) => void;
export type Choose = (q: number, k?: Maybe) => void;
export type Pointed = (event: MouseEvent, drawing: HTMLElement, down: Ints, along: Ints) => [number, number];
export type At = (share: number, all: Ints) => number;
export type Mark = (q: number, from: number, count: number) => HTMLElement;
export type Word = (text: string, x: number, i: number, anchor: string, strong: boolean) => SVGElement;
export type Picked = (q: number, k: number) => SVGElement[];
export type Trait = "layer" | "example" | "head" | "query" | "key_start" | "top" | "threshold";
export type Offered = [Trait, string, false | [number, string][], ((name: Trait) => number)?];
export type Options = (name: string, count: number) => [number, string][];
export type Windows = (count: number) => [number, string][];
export type Swatch = (code: number, text: string) => HTMLElement;

export interface Wall {
  sizes: [number, number, number, number];
  grid: [number, number, number, number];
  pool: string;
  maps: string;
  ramp: string[];
  ramps: string[][];
  query_tokens: string[];
  key_tokens: string[];
  number_names: string[];
  numbers: (number | null)[][];
  places: number[];
  detailed: number[];
  details: string[];
  top_keys: number;
  sent: [] | [number, string];
  kept: boolean;
  note: string;
  layer: number;
  head: number;
  query: number;
  view: string;
  number: string;
  order: string;
  marked: number;
}
/** Of a head of the wall: the code of a block of its map. */
export type Block = (index: number, r: number, c: number) => number;
export type PaintWall = (canvas: HTMLCanvasElement, heads: Ints, perRow: number, across: number, down: number, gap: number, read: Block) => void;
export type Detail = (q: number) => { keys: number[][]; share: number } | null;

/* The live model. */
export interface Live {
  model_name: string;
  input: string;
  deeds: LiveDeeds;
  head: string;
  query: number;
  moment: number;
  quests: { name: string; text: string; input: string; goal: Goal }[];
  compact: boolean;
  heats: boolean;
  future: boolean;
  sums: number[];
}
/** What a page needs of a stored model: from the kernel as bytes, from a script in base64. */
export interface Carried {
  weights: string | DataView;
  facts: LiveFacts;
}
export interface LiveFacts {
  name: string;
  described: import("../live/settings.js").Described;
  what: "words" | "symbols";
  says: "sentence" | "symbols" | "answers";
  one: "sentence" | "list" | "word";
  letters: string;
  longest: number;
  known: string[];
  others: [string, string[]][];
  means: Record<string, number[]>;
  ramps: string[][];
  written?: string[];
  begin?: number;
  end?: number;
  most?: number;
  ways?: Record<string, string>;
  menus?: string[][];
  nouns?: string[];
  plurals?: string[];
  questions?: string[];
  steps?: number[];
  right?: number[];
}
/** What is done to a head; other inputs are named by their text. */
export interface LiveDeed {
  off?: true | "mean";
  rows?: Record<string, number[]>;
  frozen?: string;
  patch?: string;
}
/** What heads mix: their scores before the softmax, and their weights after it. */
export type Step = "scores" | "weights";
/** What is done to how the heads of a layer talk: the cells that were moved, "n m" for what goes from head n to head m. */
export type LayerDeed = Partial<Record<Step, Record<string, number>>>;
export type LiveDeeds = Record<string, LiveDeed | LayerDeed | false>;
export type MixingCell = { step: Step; n: number; m: number };
export interface MixingActs {
  choose: () => void;
  move: (layer: string, cell: MixingCell, to: number) => void;
  free: (layer: string, cell: MixingCell) => void;
  silence: (layer: string, step: Step) => void;
  restore: (layer: string, step: Step) => void;
}
export interface LiveState {
  input: string;
  deeds: LiveDeeds;
  head: string;
  query: number;
  moment: number;
  sums?: number[];
}
export interface Goal {
  says?: string;
  unchanged?: boolean;
  least_off?: number;
  most_off?: number;
  most_rows?: number;
  most_cells?: number;
  others_right_at_most?: number;
  wrong_at_least?: number;
  witness?: [string, number];
}
type Records = Record<string, import("../live/deeds.js").HeadRecord>;
type EngineDeeds = import("../live/deeds.js").Deeds;
export type Memory = { data: Float64Array; n: number };
/** A run of a live model: what it said, and what its heads did. */
export interface Ran {
  answer: string[];
  log: Records;
}
/** The run of the moment, with what was said as trained, and the logarithm of that answer's probability now. */
export interface Now extends Ran {
  units: string[];
  plain: string[];
  logP: number;
}
export interface Task {
  engine: import("../live/engine.js").Engine;
  facts: LiveFacts;
  units: (text: string) => string[];
  joined: (units: string[]) => string;
  right?: (units: string[]) => string[] | undefined;
  counted: (units: string[], answer: string[]) => number[];
  numWrong: (units: string[], answer: string[], plain: string[]) => number;
  answer: (units: string[], deeds: EngineDeeds) => string[];
  run: (units: string[], deeds: EngineDeeds) => Ran;
  /** How likely the answer `plain` is, and what is answered, where one run tells both. */
  rated: (units: string[], plain: string[], deeds: EngineDeeds) => { logP: number; answer?: string[] };
  labels: (kind: string, units: string[], answer: string[]) => { queries: string[]; keys: string[] };
}
export interface Palette {
  refresh: () => void;
  hue: (head: string) => string;
  colour: (head: string, weight: number) => number[];
}
export interface Tile {
  canvas: HTMLCanvasElement;
  button: HTMLButtonElement;
  bar: HTMLElement;
  power: HTMLButtonElement;
  whole: HTMLElement;
}
export interface LargeActs {
  power: (value: string) => void;
  patch: (text: string) => void;
  freeze: () => void;
  query: (query: number) => void;
  put: (query: number, key: number) => void;
  pull: (query: number, key: number, weight: number) => void;
  release: (query: number) => void;
  temperature?: { of: (query: number) => number; set: (query: number, temperature: number) => void };
}
export interface Drawn {
  head: string;
  record: import("../live/deeds.js").HeadRecord;
  queries: string[];
  keys: string[];
  deed: LiveDeed;
  query: number;
  isCausal: boolean;
}
export interface InputActs {
  take: (units: string[]) => void;
  menu: (units: string[], i: number) => string[];
  replace: (i: number, unit: string) => void;
}
