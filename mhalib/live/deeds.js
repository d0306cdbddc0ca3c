// @ts-check
/* What may be done to the heads of a model while it runs. This is the contract that Python's context managers in
 * mhalib.measures keep, too: the same deeds give the same numbers.
 *
 * A head is called "kind layer head", as in "encoder self 1 2" or "cross 0 3". Its weights have a row for each query and
 * a column for each key; its output is the average of the values by these weights, (Q, d), before W_o mixes the heads.
 * Queries and keys count from the beginning of the sequence, also while a model writes and keeps keys and values.
 *
 * Of each query, the weights come from the first of these that gives some:
 *   1. `rows`: the row that is set for this query;
 *   2. `frozen`: the row of another run, where that run had this query;
 *   3. the head's own, by softmax; with talking heads, after both mixings, so that it is what multiplies the values.
 * A key that a row does not reach has weight 0, and so has one that the mask hides. What is left is divided by its sum,
 * so that it sums to 1. Where that sum is 1e-9 or less, a row that is set is refused, and of a frozen one the head's own
 * counts. A frozen row of a layer whose rows need not sum to 1 (talking heads) is taken as it is, and not divided.
 *
 * Then the output is made:
 *   4. the average of the values by these weights;
 *   5. `patch`: instead, the output that another run had for this query, where that run had it;
 *   6. `mean`: instead, the same d numbers for all queries (mean ablation);
 *   7. `gate`: the output times a number; 0 switches the head off.
 *
 * Before all of this, talking heads mix their scores, and after the softmax their weights: `mix` has matrices (h, h) in
 * place of the trained ones, row n, column m for how much of head n goes to head m. Python's context manager is `mixed`.
 */

/**
 * @typedef {object} HeadDeed
 * @property {Record<number, ArrayLike<number>>} [rows] weights by query
 * @property {{ nq: number, nk: number, weights: ArrayLike<number> }} [frozen] weights (nq, nk) of another run
 * @property {{ nq: number, values: ArrayLike<number> }} [patch] outputs (nq, d) of another run
 * @property {ArrayLike<number>} [mean] d numbers
 * @property {number} [gate]
 */
/**
 * How the heads of a layer talk, instead of as they were trained: h * h numbers, row after row.
 * @typedef {{ scores?: ArrayLike<number>, weights?: ArrayLike<number> }} MixDeed
 */
/**
 * What is done to a model. `positions: false` leaves out the table of positions that is added to tokens, or the rotation
 * of queries and keys. `future: false` puts a causal mask into an encoder's self-attention. `mix` is by layer, as in
 * "decoder self 1".
 * @typedef {{ heads?: Record<string, HeadDeed>, positions?: boolean, future?: boolean, mix?: Record<string, MixDeed> }} Deeds
 */
/** What a head did in a run: weights (nq, nk), and its output (nq, d) after all deeds. It may be given as `frozen` and as `patch`. @typedef {{ nq: number, nk: number, weights: Float64Array, values: Float64Array }} HeadRecord */
/**
 * The size of one attention: Q queries, of which the first has place `start`, and K keys.
 * @typedef {{ numQueries: number, numKeys: number, start: number, isCausal: boolean }} Reach
 */

export const SMALLEST_SUM = 1e-9;
const HEAD_DEEDS = ["rows", "frozen", "patch", "mean", "gate"];
const MODEL_DEEDS = ["heads", "positions", "future", "mix"];
const STEPS = ["scores", "weights"];

/** How many keys, from the first on, query i of this run may see. @type {(reach: Reach, i: number) => number} */
export const keysSeen = ({ numKeys, start, isCausal }, i) => (isCausal ? start + i + 1 : numKeys);

/** The layer of a head: "decoder self 1" of "decoder self 1 3". @type {(head: string) => string} */
export const layerOf = (head) => head.slice(0, head.lastIndexOf(" "));

/** Raises if `deeds` names a head or a deed that there is not, or has a list of another length. @type {(deeds: Deeds, heads: string[], headDim: number, doTalk: boolean) => void} */
export function requireDeeds(deeds, heads, headDim, doTalk) {
  for (const name of Object.keys(deeds)) {
    if (!MODEL_DEEDS.includes(name)) throw new RangeError(`deeds.${name} is unknown: known are ${MODEL_DEEDS.join(", ")}`);
  }
  for (const name of /** @type {const} */ (["positions", "future"])) {
    if (typeof (deeds[name] ?? true) !== "boolean") throw new TypeError(`${name}=${deeds[name]} must be true or false`);
  }
  for (const [head, deed] of Object.entries(deeds.heads ?? {})) {
    if (!heads.includes(head)) throw new RangeError(`the model has no head ${head}: it has ${heads[0]} to ${heads.at(-1)}`);
    requireHeadDeed(head, deed, headDim);
  }
  for (const [layer, deed] of Object.entries(deeds.mix ?? {})) {
    if (!doTalk) throw new RangeError(`mix names ${layer}, but the heads of this model do not talk`);
    const numHeads = heads.filter((head) => layerOf(head) === layer).length;
    if (!numHeads) throw new RangeError(`mix names ${layer}, but the layers are ${layerOf(heads[0])} to ${layerOf(heads.at(-1) ?? "")}`);
    requireMix(layer, deed, numHeads);
  }
}

/** @type {(layer: string, deed: MixDeed, numHeads: number) => void} */
function requireMix(layer, deed, numHeads) {
  for (const [step, matrix] of Object.entries(deed)) {
    if (!STEPS.includes(step)) throw new RangeError(`mix of ${layer}: ${step} is unknown: known are ${STEPS.join(", ")}`);
    requireLength(`mix of ${layer}: ${step}`, matrix, numHeads ** 2);
    if (!Array.from(matrix).every(Number.isFinite)) throw new RangeError(`mix of ${layer}: ${step} must be finite`);
  }
}

/** @type {(head: string, deed: HeadDeed, headDim: number) => void} */
function requireHeadDeed(head, deed, headDim) {
  for (const name of Object.keys(deed)) {
    if (!HEAD_DEEDS.includes(name)) throw new RangeError(`${head}: ${name} is unknown: known are ${HEAD_DEEDS.join(", ")}`);
  }
  const { frozen, patch, mean, gate = 1, rows = {} } = deed;
  if (!Number.isFinite(gate)) throw new TypeError(`${head}: gate=${gate} must be a number`);
  if (mean) requireLength(`${head}: mean`, mean, headDim);
  if (frozen) requireLength(`${head}: frozen.weights`, frozen.weights, frozen.nq * frozen.nk);
  if (patch) requireLength(`${head}: patch.values`, patch.values, patch.nq * headDim);
  for (const [query, row] of Object.entries(rows)) {
    if (!/^\d+$/.test(query)) throw new RangeError(`${head}: rows has ${query}, which is no query`);
    const weights = Array.from(row);
    if (weights.every((weight) => Number.isFinite(weight) && weight >= 0) && weights.some((weight) => weight > 0)) continue;
    throw new RangeError(`${head}: rows of query ${query}=${weights} must be finite, at least 0, and not 0 everywhere`);
  }
}

/** @type {(name: string, numbers: ArrayLike<number>, length: number) => void} */
function requireLength(name, numbers, length) {
  if (numbers.length !== length) throw new RangeError(`${name} has ${numbers.length} numbers, not ${length}`);
}

/**
 * Steps 1 to 3: a head's own weights (Q, K), changed in place into those that count. Raises if a row that is set has no
 * weight on a key that its query may see.
 * @type {(weights: Float64Array, deed: HeadDeed, reach: Reach, rowsSumToOne: boolean, head: string) => void}
 */
export function changeWeights(weights, deed, reach, rowsSumToOne, head) {
  const { rows = {}, frozen } = deed;
  for (let i = 0; i < reach.numQueries; i += 1) {
    const query = reach.start + i;
    const row = weights.subarray(i * reach.numKeys, (i + 1) * reach.numKeys);
    const seen = keysSeen(reach, i);
    if (rows[query]) {
      if (setRow(row, seen, rows[query], 0, rows[query].length, true)) continue;
      throw new RangeError(`${head}: rows of query ${query} has no weight on a key that the query may see`);
    }
    if (frozen && query < frozen.nq) setRow(row, seen, frozen.weights, query * frozen.nk, frozen.nk, rowsSumToOne);
  }
}

/**
 * Set a row (K,) to `count` numbers of `given`, from `from` on, as far as its query sees; false if they are too small to
 * be divided by their sum, and then the row is as it was.
 * @type {(row: Float64Array, seen: number, given: ArrayLike<number>, from: number, count: number, divide: boolean) => boolean}
 */
function setRow(row, seen, given, from, count, divide) {
  const reached = Math.min(seen, count);
  let sum = 0;
  for (let key = 0; key < reached; key += 1) sum += given[from + key];
  if (divide && !(sum > SMALLEST_SUM)) return false;
  for (let key = 0; key < seen; key += 1) row[key] = key < reached ? given[from + key] / (divide ? sum : 1) : 0;
  return true;
}

/** Steps 5 to 7: what a head found (Q, d), changed in place into its output. @type {(output: Float64Array, deed: HeadDeed, reach: Reach, headDim: number) => void} */
export function changeOutput(output, { patch, mean, gate = 1 }, reach, headDim) {
  for (let i = 0; i < reach.numQueries; i += 1) {
    const query = reach.start + i;
    for (let channel = 0; channel < headDim; channel += 1) {
      let number = output[i * headDim + channel];
      if (patch && query < patch.nq) number = patch.values[query * headDim + channel];
      if (mean) number = mean[channel];
      output[i * headDim + channel] = number * gate;
    }
  }
}
