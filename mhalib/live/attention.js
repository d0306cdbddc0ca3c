// @ts-check
/* Between the projections of an attention layer and its W_o: scores, softmax, average. Vectors of all heads stand side by
 * side: q is (Q, h * d), keys and values are (K, num_kv_heads * d), since neighbouring heads may share them. */
/** @import { Reach } from "./deeds.js" */
/** @import { Tensor } from "./tensors.js" */
import { keysSeen } from "./deeds.js";
import { dot, softmaxInPlace } from "./tensors.js";

/** h, num_kv_heads and d of a layer. @typedef {{ numHeads: number, numKvHeads: number, headDim: number }} Heads */
/** How talking heads mix: the scores before the softmax, and the weights after it, both (h, h). @typedef {{ scores: Tensor, weights: Tensor }} Mixing */

/** The first column of a head's keys and values. @type {(head: number, heads: Heads) => number} */
const kvColumn = (head, { numHeads, numKvHeads, headDim }) => Math.floor((head * numKvHeads) / numHeads) * headDim;

/**
 * The weights of all heads, (h, Q, K): the softmax of q k^T / √d over the keys that a query may see, 0 for the others.
 * Talking heads mix before and after it.
 * @param {Float64Array} q
 * @param {Float64Array} k
 * @param {Heads} heads
 * @param {Reach} reach
 * @param {Mixing | null} mixing
 */
export function ownWeights(q, k, heads, reach, mixing) {
  let weights = scoresOf(q, k, heads, reach);
  if (mixing) weights = mixedHeads(weights, mixing.scores);
  for (let row = 0; row < heads.numHeads * reach.numQueries; row += 1) {
    softmaxInPlace(weights, row * reach.numKeys, keysSeen(reach, row % reach.numQueries));
  }
  return mixing ? mixedHeads(weights, mixing.weights) : weights;
}

/** Scores q k^T / √d of all heads, (h, Q, K), 0 where a query may not see the key. @type {(q: Float64Array, k: Float64Array, heads: Heads, reach: Reach) => Float64Array} */
function scoresOf(q, k, heads, reach) {
  const { numHeads, numKvHeads, headDim } = heads;
  const { numQueries, numKeys } = reach;
  const scores = new Float64Array(numHeads * numQueries * numKeys);
  for (let head = 0; head < numHeads; head += 1) {
    for (let i = 0; i < numQueries; i += 1) {
      const query = (i * numHeads + head) * headDim;
      for (let j = 0; j < keysSeen(reach, i); j += 1) {
        const product = dot(q, query, k, j * numKvHeads * headDim + kvColumn(head, heads), headDim);
        scores[(head * numQueries + i) * numKeys + j] = product / Math.sqrt(headDim);
      }
    }
  }
  return scores;
}

/**
 * Scores or weights of talking heads, (h, Q, K) -> (h, Q, K): new head m is the sum of old heads n times P[n, m].
 * @param {Float64Array} old
 * @param {Tensor} P (h, h)
 */
function mixedHeads(old, { shape, data }) {
  const size = old.length / shape[0];
  const mixed = new Float64Array(old.length);
  for (let m = 0; m < shape[0]; m += 1) {
    for (let n = 0; n < shape[0]; n += 1) {
      for (let i = 0; i < size; i += 1) mixed[m * size + i] += data[n * shape[0] + m] * old[n * size + i];
    }
  }
  return mixed;
}

/** The average of a head's values by its weights (Q, K): (Q, d). @type {(weights: Float64Array, v: Float64Array, head: number, heads: Heads, reach: Reach) => Float64Array} */
export function average(weights, v, head, heads, { numQueries, numKeys }) {
  const { numKvHeads, headDim } = heads;
  const output = new Float64Array(numQueries * headDim);
  for (let i = 0; i < numQueries; i += 1) {
    for (let j = 0; j < numKeys; j += 1) {
      const weight = weights[i * numKeys + j];
      const value = j * numKvHeads * headDim + kvColumn(head, heads);
      for (let channel = 0; channel < headDim; channel += 1) output[i * headDim + channel] += weight * v[value + channel];
    }
  }
  return output;
}
