// @ts-check
/* The book's trained models in plain JavaScript, one sequence at a time and without padding: `GPT`, `Transformer`,
 * `ViT` and `SentenceReader` of mhalib.models, from the bytes of their safetensors. Each head's weights can be read, and each head can be changed
 * while the model runs: deeds.js says how. */
/** @import { Mixing } from "./attention.js" */
/** @import { Deeds, HeadRecord, MixDeed } from "./deeds.js" */
/** @import { Described } from "./settings.js" */
import { average, ownWeights } from "./attention.js";
import { changeOutput, changeWeights, requireDeeds } from "./deeds.js";
import { embedPatches, embedTokens } from "./embed.js";
import { attentionOf, requireKnown } from "./settings.js";
import { addInPlace, atMoment, concatenated, gelu, layerNorm, linear, readTensors, rotateInPlace } from "./tensors.js";

/** @typedef {"encoder self" | "decoder self" | "cross"} Kind */
/** n vectors, (n, D). @typedef {{ data: Float64Array, n: number }} Vectors */
/** Projected keys and values of one layer, both (K, num_kv_heads * d). @typedef {{ k: Float64Array, v: Float64Array, n: number }} KeysAndValues */
/** What a model keeps while it writes: how many tokens it has seen, and each layer's keys and values by the layer's path. @typedef {{ start: number, layers: Record<string, KeysAndValues> }} Cache */
/** What a run is told besides its tokens. A `log` is filled with what each head did. @typedef {{ deeds?: Deeds, log?: Record<string, HeadRecord>, cache?: Cache }} Run */

/** The kinds of attention that a model has. @type {Record<string, Kind[]>} */
const KINDS = {
  GPT: ["decoder self"],
  Transformer: ["encoder self", "decoder self", "cross"],
  ViT: ["encoder self"],
  SentenceReader: ["encoder self"],
};

/** A cache that has seen nothing. @type {() => Cache} */
export const newCache = () => ({ start: 0, layers: {} });

/** The index of the largest of `width` numbers, from `from` on; of equal ones, the first. @type {(numbers: Float64Array, from: number, width: number) => number} */
export function indexOfLargest(numbers, from, width) {
  let best = 0;
  for (let i = 1; i < width; i += 1) if (numbers[from + i] > numbers[from + best]) best = i;
  return best;
}

export class Engine {
  /**
   * @param {Uint8Array} bytes of a file that mhalib.saved has written
   * @param {Described} described its class and all its settings, from mhalib.live.described
   * @param {number} [moment] of a file of mhalib.moments, counted from 0
   */
  constructor(bytes, described, moment) {
    requireKnown(described);
    this.kind = described.model;
    this.settings = described.settings;
    this.stored = readTensors(bytes);
    this.tensors = moment === undefined ? this.stored : atMoment(this.stored, moment);
    const { num_hiddens, num_heads, attention } = this.settings;
    /** A reader has one layer, and no setting for it. */
    this.numLayers = this.settings.num_layers ?? 1;
    this.attention = attentionOf(attention);
    this.doTalk = this.attention.name === "talking";
    this.headDim = num_hiddens / num_heads; // d
    this.sizes = { numHeads: num_heads, numKvHeads: this.attention.num_kv_heads ?? num_heads, headDim: this.headDim };
    const kinds = KINDS[this.kind];
    /** The names of all heads, as deeds and logs have them. */
    this.heads = kinds.flatMap((kind) =>
      Array.from({ length: this.numLayers * num_heads }, (_, i) => `${kind} ${Math.floor(i / num_heads)} ${i % num_heads}`),
    );
    this.requireSizes(kinds);
  }

  /** From now on the model is as it was at another moment of its training. @param {number} moment */
  goTo(moment) {
    this.tensors = atMoment(this.stored, moment);
  }

  /** Raises unless all heads are there: deeds count heads as they were made, and a pruned model has fewer. @param {Kind[]} kinds */
  requireSizes(kinds) {
    for (const kind of kinds) {
      for (let layer = 0; layer < this.numLayers; layer += 1) {
        for (const [name, rows] of Object.entries({ W_q: this.settings.num_hiddens, W_k: this.sizes.numKvHeads * this.headDim })) {
          const path = `${this.attentionPath(kind, layer)}.${name}.weight`;
          const { shape } = this.tensor(path);
          if (shape[0] !== rows) throw new RangeError(`${path} has ${shape[0]} rows, not ${rows}: were heads removed?`);
        }
      }
    }
  }

  /** The tensor of that name. @param {string} name */
  tensor(name) {
    if (!Object.hasOwn(this.tensors, name)) throw new RangeError(`the file has no ${name}`);
    return this.tensors[name];
  }

  /** What the names of an attention's tensors begin with. @param {Kind} kind @param {number} layer */
  attentionPath(kind, layer) {
    if (this.kind === "SentenceReader") return "attention";
    return `${layerPath(kind, layer)}.${kind === "cross" ? "cross_attention" : "attention"}`;
  }

  /** The linear map of that path: (n, inputs) -> (n, outputs). @param {string} path @param {Float64Array} x @param {number} n */
  map(path, x, n) {
    return linear(x, n, this.tensor(`${path}.weight`), this.tensors[`${path}.bias`]);
  }

  /** The normalisation of that path: (n, D) -> (n, D). @param {string} path @param {Float64Array} x @param {number} n */
  normalise(path, x, n) {
    return layerNorm(x, n, this.tensor(`${path}.weight`), this.tensor(`${path}.bias`), this.settings.norm_eps);
  }

  /**
   * A GPT reads tokens: logits (n, words) for what comes after each.
   * @param {number[]} ids with a cache, the new ones only
   * @param {Run} [run]
   */
  read(ids, run = {}) {
    this.requireRun("GPT", run);
    return this.runDecoder(embedTokens(this, "tokens", ids, run), null, run);
  }

  /**
   * A Transformer reads its source: the memory (K, D).
   * @param {number[]} ids
   * @param {Run} [run]
   * @returns {Vectors}
   */
  encode(ids, run = {}) {
    this.requireRun("Transformer", run);
    return this.runEncoder(embedTokens(this, "source", ids, { ...run, cache: undefined }), run);
  }

  /**
   * A ViT looks at a picture: logits (num_classes,), read from its class token.
   * @param {ArrayLike<number>} pixels (height, width), row after row
   * @param {Run} [run]
   */
  look(pixels, run = {}) {
    this.requireRun("ViT", run);
    const { height, width } = this.settings;
    if (pixels.length !== height * width) throw new RangeError(`pixels has ${pixels.length} numbers, not ${height} times ${width}`);
    const patches = embedPatches(this, pixels, run);
    const tokens = concatenated(this.tensor("class_token").data, patches.data); // the class token is the first
    const { data } = this.runEncoder({ data: tokens, n: 1 + patches.n }, run);
    return this.map("readout", data.subarray(0, this.settings.num_hiddens), 1);
  }

  /**
   * A SentenceReader answers its questions about each word: scores (n, num_questions, words).
   * @param {number[]} ids
   * @param {Run} [run]
   */
  answer(ids, run = {}) {
    this.requireRun("SentenceReader", run);
    const words = embedTokens(this, "tokens", ids, { ...run, cache: undefined });
    return this.map("readout", this.attend("encoder self", 0, words, words, run), words.n);
  }

  /**
   * The encoder's layers: (n, D) -> (n, D).
   * @param {Vectors} vectors
   * @param {Run} run
   * @returns {Vectors}
   */
  runEncoder({ data, n }, run) {
    let x = data;
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      x = this.attendAndSkip("encoder self", layer, { data: x, n }, null, run);
      x = this.feedForward(`encoder.layers.${layer}`, x, n);
    }
    return { data: this.lastNorm("encoder", x, n), n };
  }

  /**
   * A Transformer reads its target: logits (n, words) for what comes after each token.
   * @param {number[]} ids with a cache, the new ones only
   * @param {Vectors} memory from `encode`
   * @param {Run} [run]
   */
  decode(ids, memory, run = {}) {
    this.requireRun("Transformer", run);
    return this.runDecoder(embedTokens(this, "target", ids, run), memory, run);
  }

  /**
   * Write greedily: after the given tokens always the likeliest, with keys and values kept. The ids that are new.
   * @param {number[]} ids what it begins with
   * @param {number} count how many are written at most
   * @param {{ deeds?: Deeds, memory?: Vectors, end?: number }} [options] with `end`, this id is the last
   */
  write(ids, count, { deeds, memory, end } = {}) {
    const run = { deeds, cache: newCache() };
    /** @type {number[]} */
    const written = [];
    let unread = ids;
    const isEnded = () => end !== undefined && written.at(-1) === end;
    while (written.length < count && !isEnded()) {
      const logits = memory ? this.decode(unread, memory, run) : this.read(unread, run);
      const words = logits.length / unread.length;
      const next = indexOfLargest(logits, logits.length - words, words);
      written.push(next);
      unread = [next];
    }
    return written;
  }

  /** Raises if this is another kind of model, or cannot do the deeds of a run. @param {string} kind @param {Run} run */
  requireRun(kind, run) {
    if (this.kind !== kind) throw new TypeError(`this is a ${this.kind}, not a ${kind}`);
    requireDeeds(run.deeds ?? {}, this.heads, this.headDim, this.doTalk);
  }

  /**
   * The decoder's layers, and the readout: (n, D) -> logits (n, words).
   * @param {Vectors} vectors
   * @param {Vectors | null} memory
   * @param {Run} run
   */
  runDecoder({ data, n }, memory, run) {
    let x = data;
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      x = this.attendAndSkip("decoder self", layer, { data: x, n }, null, run);
      if (memory) x = this.attendAndSkip("cross", layer, { data: x, n }, memory, run);
      x = this.feedForward(`decoder.layers.${layer}`, x, n);
    }
    if (run.cache) run.cache.start += n;
    x = this.lastNorm("decoder", x, n);
    const hasReadout = Object.hasOwn(this.tensors, "readout.weight"); // a GPT's may be its tokens' own vectors
    return hasReadout ? this.map("readout", x, n) : linear(x, n, this.tensor("tokens.embedding.weight"));
  }

  /** With norm="pre", a stack ends in a normalisation. @param {string} stack @param {Float64Array} x @param {number} n */
  lastNorm(stack, x, n) {
    return this.settings.norm === "pre" ? this.normalise(`${stack}.norm`, x, n) : x;
  }

  /**
   * A skip connection around a sublayer, (n, D) -> (n, D): x + sublayer(norm(x)), or norm(x + sublayer(x)).
   * @param {string} path
   * @param {Float64Array} x
   * @param {number} n
   * @param {(seen: Float64Array) => Float64Array} sublayer
   */
  skip(path, x, n, sublayer) {
    if (this.settings.norm === "pre") return addInPlace(sublayer(this.normalise(`${path}.norm`, x, n)), x);
    return this.normalise(`${path}.norm`, addInPlace(sublayer(x), x), n);
  }

  /** The feed-forward network of a layer with its skip connection, if it has one: (n, D) -> (n, D). @param {string} layer @param {Float64Array} x @param {number} n */
  feedForward(layer, x, n) {
    if (!this.settings.ffn_num_hiddens) return x;
    return this.skip(`${layer}.ffn_skip`, x, n, (seen) => this.map(`${layer}.ffn.narrow`, this.map(`${layer}.ffn.widen`, seen, n).map(gelu), n));
  }

  /**
   * The attention of a layer with its skip connection: (n, D) -> (n, D).
   * @param {Kind} kind
   * @param {number} layer
   * @param {Vectors} x
   * @param {Vectors | null} memory where keys and values come from, if not from x
   * @param {Run} run
   */
  attendAndSkip(kind, layer, { data, n }, memory, run) {
    const skip = `${layerPath(kind, layer)}.${kind === "cross" ? "cross_skip" : "attention_skip"}`;
    return this.skip(skip, data, n, (seen) =>
      this.attend(kind, layer, { data: seen, n }, memory ?? { data: seen, n }, run),
    );
  }

  /**
   * Multi-head attention: queries (Q, D) and what keys and values are made of (K, D) -> (Q, D).
   * @param {Kind} kind
   * @param {number} layer
   * @param {Vectors} queries
   * @param {Vectors} keys
   * @param {Run} run
   */
  attend(kind, layer, queries, keys, run) {
    const path = this.attentionPath(kind, layer);
    const { num_hiddens, num_heads } = this.settings;
    const start = kind === "encoder self" ? 0 : (run.cache?.start ?? 0);
    const turns = this.settings.positions === "rotary" && kind !== "cross" && run.deeds?.positions !== false;
    // 1. project: q (Q, h * d), k and v (K, num_kv_heads * d)
    const q = this.map(`${path}.W_q`, queries.data, queries.n);
    if (turns) rotateInPlace(q, queries.n, this.headDim, start);
    const { k, v, n: numKeys } = this.keysAndValues(kind, path, keys, turns, run.cache);
    const reach = { numQueries: queries.n, numKeys, start, isCausal: this.isCausal(kind, run.deeds) };
    // 2. each head's own weights, (h, Q, K)
    const weights = ownWeights(q, k, this.sizes, reach, this.mixingOf(path, run.deeds?.mix?.[`${kind} ${layer}`]));
    const merged = new Float64Array(queries.n * num_hiddens);
    for (let head = 0; head < num_heads; head += 1) {
      const name = `${kind} ${layer} ${head}`;
      const deed = run.deeds?.heads?.[name] ?? {};
      const ofHead = weights.subarray(head * queries.n * numKeys, (head + 1) * queries.n * numKeys);
      // 3. what is done to its weights (Q, K), the average of its values (Q, d), and what is done to that
      changeWeights(ofHead, deed, reach, !this.doTalk, name);
      const output = average(ofHead, v, head, this.sizes, reach);
      changeOutput(output, deed, reach, this.headDim);
      if (run.log) run.log[name] = { nq: queries.n, nk: numKeys, weights: ofHead, values: output };
      // 4. merge: this head's d columns of (Q, D)
      for (let i = 0; i < queries.n; i += 1) {
        merged.set(output.subarray(i * this.headDim, (i + 1) * this.headDim), i * num_hiddens + head * this.headDim);
      }
    }
    // 5. mix the heads
    return this.map(`${path}.W_o`, merged, queries.n);
  }

  /** Whether no query sees what comes after it. @param {string} kind @param {Deeds} [deeds] */
  isCausal(kind, deeds) {
    return kind === "decoder self" || (kind === "encoder self" && deeds?.future === false);
  }

  /**
   * What each head of a SentenceReader adds to its scores of one word, (h, num_questions * words), and what is no head's.
   * @param {Record<string, HeadRecord>} log of a run of `answer`
   * @param {number} query
   */
  addedByHeads(log, query) {
    const { num_hiddens, num_heads } = this.settings;
    const apart = new Float64Array(num_heads * num_hiddens); // a row for each head, 0 but for its own d columns
    this.heads.forEach((name, head) => {
      apart.set(log[name].values.subarray(query * this.headDim, (query + 1) * this.headDim), head * (num_hiddens + this.headDim));
    });
    const byHead = linear(linear(apart, num_heads, this.tensor("attention.W_o.weight")), num_heads, this.tensor("readout.weight"));
    return { byHead, ofNone: this.map("readout", this.map("attention.W_o", new Float64Array(num_hiddens), 1), 1) };
  }

  /** How the heads of a layer talk, if they do. @param {string} path @param {MixDeed} [deed] @returns {Mixing | null} */
  mixingOf(path, { scores, weights } = {}) {
    if (!this.doTalk) return null;
    const own = { scores: this.tensor(`${path}.P_scores`), weights: this.tensor(`${path}.P_weights`) };
    const given = (/** @type {ArrayLike<number>} */ numbers) => ({ shape: own.scores.shape, data: Float64Array.from(numbers) });
    return { scores: scores ? given(scores) : own.scores, weights: weights ? given(weights) : own.weights };
  }

  /** How the heads of a layer were trained to talk, such as "decoder self 1". @param {string} layer */
  trainedMixing(layer) {
    const [, kind, number] = /** @type {RegExpExecArray} */ (/^(.+) (\d+)$/.exec(layer));
    return this.mixingOf(this.attentionPath(/** @type {Kind} */ (kind), Number(number)));
  }

  /**
   * Keys and values of a layer, with those that the cache has before the new ones. Those of a memory are made once.
   * @param {Kind} kind
   * @param {string} path
   * @param {Vectors} keys
   * @param {boolean} turns whether positions turn the keys
   * @param {Cache} [cache]
   * @returns {KeysAndValues}
   */
  keysAndValues(kind, path, { data, n }, turns, cache) {
    const isCached = cache && kind !== "encoder self";
    const old = isCached ? cache.layers[path] : undefined;
    if (old && kind === "cross") return old;
    const k = this.map(`${path}.W_k`, data, n);
    const v = this.map(`${path}.W_v`, data, n);
    if (turns) rotateInPlace(k, n, this.headDim, old?.n ?? 0);
    const all = old ? { k: concatenated(old.k, k), v: concatenated(old.v, v), n: old.n + n } : { k, v, n };
    if (isCached) cache.layers[path] = all;
    return all;
  }
}

/** What the names of a layer's tensors begin with. @type {(kind: Kind, layer: number) => string} */
const layerPath = (kind, layer) => `${kind === "encoder self" ? "encoder" : "decoder"}.layers.${layer}`;
