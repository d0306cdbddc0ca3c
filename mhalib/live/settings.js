// @ts-check
/* What the engine knows of a model's settings. It refuses all others by name: a model that it ran only nearly right
 * would look like the real one. */

/** @typedef {{ name: string, num_kv_heads?: number | null }} Attention */
/**
 * The settings that the engine asks for, as mhalib.live.described hands them over: all of them, also the usual ones.
 * @typedef {object} Settings
 * @property {number} num_hiddens D
 * @property {number} num_heads h
 * @property {number} [num_layers] a reader has one
 * @property {number} ffn_num_hiddens 0 means that there are no feed-forward networks
 * @property {number} max_tokens
 * @property {number} norm_eps
 * @property {string} norm
 * @property {string} positions
 * @property {string | Attention} attention
 * @property {number} [embedding_scale]
 * @property {number} height of a ViT's pictures, in pixels
 * @property {number} width
 * @property {number} patch_size
 */
/** @typedef {{ model: string, settings: Settings }} Described */

/** Settings that may be any number; dropout is for training, and changes nothing here. */
const NUMBERS = ["num_hiddens", "num_heads", "num_layers", "ffn_num_hiddens", "dropout", "max_tokens", "norm_eps"];

/** Settings that may have one of a few values. @type {Record<string, unknown[]>} */
const CHOICES = {
  norm: ["pre", "post"],
  positions: ["none", "learned", "sinusoidal", "rotary"],
  norm_kind: ["layer"],
  ffn_kind: ["gelu"],
  ffn_bias: [true, false],
  parallel: [false],
  cross: [null],
};

/** What each model has besides, and what it leaves no choice of. @type {Record<string, { numbers: string[], choices: Record<string, unknown[]>, fixed?: string[] }>} */
const MODELS = {
  GPT: {
    numbers: ["vocab_size", "embedding_scale"],
    choices: { window: [null], readout: ["with bias", "without bias", "tied"] },
  },
  Transformer: {
    numbers: ["source_vocab_size", "target_vocab_size", "embedding_scale"],
    choices: {
      share_tokens: [true, false],
      embedding_norm: [false],
      readout: ["with bias", "without bias", "tied", "tied with bias"],
      readout_scale: [1],
      decoder: [null],
    },
  },
  ViT: {
    numbers: ["num_classes", "height", "width", "patch_size"],
    choices: { channels: [null], patch_bias: [true, false], readout_bias: [true, false], norm_tokens: [false], distilled: [false], num_registers: [0] },
    fixed: ["positions", "max_tokens"],
  },
  SentenceReader: {
    numbers: ["vocab_size", "num_questions"],
    choices: {},
    fixed: ["num_layers", "ffn_num_hiddens", "dropout", "norm", "norm_kind", "norm_eps", "ffn_kind", "ffn_bias", "parallel", "cross"],
  },
};

/** Settings that the engine takes only where they do nothing; older pages leave them out. @type {Map<string, unknown>} */
const OFF = new Map([["logit_cap", null], ["mixture", null]]);

const ATTENTIONS = ["multi-head", "talking"];
/** Settings of an attention layer; `init` is how talking heads began, and which biases there are, the file says. */
const ATTENTION_SETTINGS = ["name", "num_kv_heads", "init", "bias", "out_bias"];

/** Raises unless the engine knows the model and each of its settings, and all are given. @type {(described: Described) => void} */
export function requireKnown({ model, settings }) {
  if (!Object.hasOwn(MODELS, model)) throw new RangeError(`model=${model} must be one of ${Object.keys(MODELS).join(", ")}`);
  const own = MODELS[model];
  const isOpen = (/** @type {string} */ name) => !own.fixed?.includes(name);
  const numbers = [...NUMBERS, ...own.numbers].filter(isOpen);
  const choices = Object.fromEntries(Object.entries({ ...CHOICES, ...own.choices }).filter(([name]) => isOpen(name)));
  const given = new Map(Object.entries(settings));
  for (const name of [...numbers, ...Object.keys(choices), "attention"]) {
    if (!given.has(name)) throw new RangeError(`settings.${name} is missing: all are needed, also the usual ones`);
  }
  for (const [name, value] of given) {
    if (OFF.has(name) && value === OFF.get(name)) continue;
    if (name === "attention") attentionOf(value);
    else if (numbers.includes(name)) requireNumber(`settings.${name}`, value);
    else if (!Object.hasOwn(choices, name)) throw new RangeError(`settings.${name}=${JSON.stringify(value)} is unknown`);
    else requireChoice(`settings.${name}`, value, choices[name]);
  }
}

/** The kind of attention as a mapping. Raises unless the engine knows it. @type {(choice: any) => Attention} */
export function attentionOf(choice) {
  const attention = typeof choice === "string" ? { name: choice } : choice;
  requireChoice("settings.attention", attention?.name ?? choice, ATTENTIONS);
  for (const name of Object.keys(attention)) {
    if (!ATTENTION_SETTINGS.includes(name)) throw new RangeError(`settings.attention.${name}=${JSON.stringify(attention[name])} is unknown`);
  }
  return attention;
}

/** @type {(name: string, value: unknown) => void} */
function requireNumber(name, value) {
  if (typeof value !== "number") throw new TypeError(`${name}=${JSON.stringify(value)} must be a number`);
}

/** @type {(name: string, value: unknown, known: unknown[]) => void} */
function requireChoice(name, value, known) {
  const listed = known.map((one) => JSON.stringify(one)).join(", ");
  if (!known.includes(value)) throw new RangeError(`${name}=${JSON.stringify(value)} must be one of ${listed}`);
}
