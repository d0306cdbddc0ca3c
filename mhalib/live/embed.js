// @ts-check
/* Vectors for what a model reads, tokens or patches of a picture, with their positions. */
/** @import { Engine, Run, Vectors } from "./engine.js" */
import { addInPlace, sinusoids } from "./tensors.js";

/**
 * A vector for each token, times a scale, plus its position's, where positions act on vectors: (n, D).
 * @param {Engine} model
 * @param {string} side "tokens", "source" or "target"
 * @param {number[]} ids
 * @param {Run} run
 * @returns {Vectors}
 */
export function embedTokens(model, side, ids, { deeds, cache }) {
  const { num_hiddens, embedding_scale = 1 } = model.settings;
  const { shape, data } = model.tensor(`${side}.embedding.weight`);
  const x = new Float64Array(ids.length * num_hiddens);
  ids.forEach((id, i) => {
    if (!(Number.isInteger(id) && id >= 0 && id < shape[0])) throw new RangeError(`${side} holds ${id}, but ids go from 0 to ${shape[0] - 1}`);
    const position = deeds?.positions === false ? null : positionOf(model, side, (cache?.start ?? 0) + i);
    for (let channel = 0; channel < num_hiddens; channel += 1) {
      x[i * num_hiddens + channel] = data[id * num_hiddens + channel] * embedding_scale + (position?.[channel] ?? 0);
    }
  });
  return { data: x, n: ids.length };
}

/** What is added to the token at a place, (D,), or null. @type {(model: Engine, side: string, place: number) => Float64Array | null} */
function positionOf(model, side, place) {
  const { positions, num_hiddens, max_tokens } = model.settings;
  if (positions === "sinusoidal") return sinusoids(place, num_hiddens);
  if (positions !== "learned") return null;
  if (place >= max_tokens) throw new RangeError(`${place + 1} tokens, but the model has only max_tokens=${max_tokens} positions`);
  return model.tensor(`${side}.positions.table`).data.subarray(place * num_hiddens, (place + 1) * num_hiddens);
}

/**
 * A vector for each patch of a picture, row after row, plus its position's: (N, D).
 * @param {Engine} model
 * @param {ArrayLike<number>} pixels
 * @param {Run} run
 * @returns {Vectors}
 */
export function embedPatches(model, pixels, { deeds }) {
  const { height, width, patch_size } = model.settings;
  const n = (height * width) / patch_size ** 2;
  const perRow = width / patch_size;
  const patches = Float64Array.from({ length: height * width }, (_, i) => {
    const [patch, pixel] = [Math.floor(i / patch_size ** 2), i % patch_size ** 2];
    const row = Math.floor(patch / perRow) * patch_size + Math.floor(pixel / patch_size);
    const column = (patch % perRow) * patch_size + (pixel % patch_size);
    return pixels[row * width + column];
  });
  const data = model.map("patches.embedding", patches, n);
  return { data: deeds?.positions === false ? data : addInPlace(data, model.tensor("patches.positions.table").data), n };
}
