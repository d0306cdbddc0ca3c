// @ts-check
/* A file of weights read, and the few maps that a transformer is made of. n vectors of width D are one Float64Array of
 * n * D numbers, vector after vector, written (n, D). Weights are stored as float16; everything is computed in float64. */

/** @typedef {{ shape: number[], data: Float64Array }} Tensor */

/** What a float16 is multiplied by for its exponent, 5 bits: 2^(exponent - 15). */
const POWERS = Float64Array.from({ length: 32 }, (_, exponent) => 2 ** (exponent - 15));

/** The number that 16 bits are as float16: 1 bit of sign, 5 of exponent, 10 of fraction. @type {(bits: number) => number} */
export function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  if (exponent === 0) return sign * fraction * 2 ** -14;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction) * POWERS[exponent];
}

/**
 * The tensors of a safetensors file by their names: float16, as mhalib.saved writes them, or bytes, of mhalib.moments.
 * The file: 8 bytes with the length of a header, the header as JSON, then the numbers of each tensor where it says.
 * @param {Uint8Array} bytes
 * @returns {Record<string, Tensor>}
 */
export function readTensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const numbersFrom = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, numbersFrom)));
  /** @type {Record<string, Tensor>} */
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (!["F16", "I8"].includes(dtype)) throw new TypeError(`${name} is ${dtype}, not F16 or I8`);
    const count = shape.reduce((/** @type {number} */ product, /** @type {number} */ size) => product * size, 1);
    const from = numbersFrom + data_offsets[0];
    const read = (/** @type {number} */ i) => (dtype === "I8" ? view.getInt8(from + i) : fromFloat16(view.getUint16(from + 2 * i, true)));
    tensors[name] = { shape, data: Float64Array.from({ length: count }, (_, i) => read(i)) };
  }
  return tensors;
}

/**
 * A model's tensors at one moment of its training, from a file of mhalib.moments: its tensors are (moments, ...), and
 * where there is a `name.scale`, (moments, rows, 1), each row is multiplied by its number.
 * @param {Record<string, Tensor>} tensors
 * @param {number} moment counted from 0
 * @returns {Record<string, Tensor>}
 */
export function atMoment(tensors, moment) {
  if (!Number.isInteger(moment)) throw new TypeError(`moment=${moment} is no whole number`);
  const names = Object.keys(tensors).filter((name) => !name.endsWith(".scale"));
  const part = (/** @type {Tensor} */ { shape, data }) => {
    const size = data.length / shape[0];
    return data.slice(moment * size, (moment + 1) * size);
  };
  return Object.fromEntries(
    names.map((name) => {
      const [tensor, scales] = [tensors[name], tensors[`${name}.scale`]];
      const [data, scale] = [part(tensor), scales && part(scales)];
      const width = tensor.shape.at(-1) ?? 1;
      if (scale) data.forEach((number, i) => { data[i] = Math.fround(number * scale[Math.floor(i / width)]); });
      return [name, { shape: tensor.shape.slice(1), data }];
    }),
  );
}

/** The sum of x[xFrom + i] * y[yFrom + i] over `length` numbers. @type {(x: Float64Array, xFrom: number, y: Float64Array, yFrom: number, length: number) => number} */
export function dot(x, xFrom, y, yFrom, length) {
  let sum = 0;
  for (let i = 0; i < length; i += 1) sum += x[xFrom + i] * y[yFrom + i];
  return sum;
}

/** Four such sums with four neighbouring rows of a matrix, into y[to] to y[to + 3]: twice as fast as one after the other. @type {(x: Float64Array, from: number, rows: Float64Array, firstRow: number, length: number, y: Float64Array, to: number) => void} */
function fourDots(x, from, rows, firstRow, length, y, to) {
  const [row1, row2, row3] = [firstRow + length, firstRow + 2 * length, firstRow + 3 * length];
  let [sum0, sum1, sum2, sum3] = [0, 0, 0, 0];
  for (let i = 0; i < length; i += 1) {
    const number = x[from + i];
    sum0 += number * rows[firstRow + i];
    sum1 += number * rows[row1 + i];
    sum2 += number * rows[row2 + i];
    sum3 += number * rows[row3 + i];
  }
  y[to] = sum0;
  y[to + 1] = sum1;
  y[to + 2] = sum2;
  y[to + 3] = sum3;
}

/**
 * x W^T + b: (n, inputs) -> (n, outputs), W being (outputs, inputs), as torch.nn.Linear has it.
 * @param {Float64Array} x
 * @param {number} n
 * @param {Tensor} weight
 * @param {Tensor} [bias]
 */
export function linear(x, n, weight, bias) {
  const [outputs, inputs] = weight.shape;
  const y = new Float64Array(n * outputs);
  for (let row = 0; row < n; row += 1) {
    const [from, to] = [row * inputs, row * outputs];
    let column = 0;
    for (; column + 4 <= outputs; column += 4) fourDots(x, from, weight.data, column * inputs, inputs, y, to + column);
    for (; column < outputs; column += 1) y[to + column] = dot(x, from, weight.data, column * inputs, inputs);
    if (bias) for (column = 0; column < outputs; column += 1) y[to + column] += bias.data[column];
  }
  return y;
}

/**
 * Layer normalisation: from each of n vectors its mean is subtracted, and it is divided by its standard deviation.
 * (n, D) -> (n, D).
 * @param {Float64Array} x
 * @param {number} n
 * @param {Tensor} gain
 * @param {Tensor} bias
 * @param {number} eps what is added to the variance
 */
export function layerNorm(x, n, gain, bias, eps) {
  const width = gain.data.length;
  const y = new Float64Array(n * width);
  for (let row = 0; row < n; row += 1) {
    const vector = x.subarray(row * width, (row + 1) * width);
    const mean = vector.reduce((sum, number) => sum + number, 0) / width;
    const variance = vector.reduce((sum, number) => sum + (number - mean) ** 2, 0) / width;
    const deviation = Math.sqrt(variance + eps);
    for (let i = 0; i < width; i += 1) y[row * width + i] = ((vector[i] - mean) / deviation) * gain.data[i] + bias.data[i];
  }
  return y;
}

/**
 * The error function, to 15 digits: its Taylor series near 0, a continued fraction farther out.
 * Source: Abramowitz and Stegun 1964, 7.1.5 and 7.1.14.
 * @type {(x: number) => number}
 */
export function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.2) {
    let [term, sum] = [size, size];
    for (let i = 1; Math.abs(term) > 1e-17 * sum; i += 1) {
      term *= (-size * size) / i;
      sum += term / (2 * i + 1);
    }
    return (Math.sign(x) * sum * 2) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let i = 60; i > 0; i -= 1) fraction = i / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + fraction));
}

/** x times the share of a normal distribution that is below x. @type {(x: number) => number} */
export const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

/** Softmax of `count` numbers from `from` on, in their place. The largest is subtracted first, so that no exp overflows. @type {(numbers: Float64Array, from: number, count: number) => void} */
export function softmaxInPlace(numbers, from, count) {
  const row = numbers.subarray(from, from + count);
  const largest = row.reduce((a, b) => Math.max(a, b));
  let sum = 0;
  for (let i = 0; i < count; i += 1) {
    row[i] = Math.exp(row[i] - largest);
    sum += row[i];
  }
  for (let i = 0; i < count; i += 1) row[i] /= sum;
}

/** How far pair i of `width` channels turns from one place to the next: 10000^(-2i/width). @type {(i: number, width: number) => number} */
const rate = (i, width) => 10000 ** ((-2 * i) / width);

/**
 * Rotary positions, as mhalib.attention.rotate: channels 2i and 2i + 1 of each head are turned by place * rate(i).
 * (n, heads * headDim), changed in place; the first vector has place `start`.
 * @type {(x: Float64Array, n: number, headDim: number, start: number) => void}
 */
export function rotateInPlace(x, n, headDim, start) {
  const width = x.length / n;
  for (let row = 0; row < n; row += 1) {
    for (let pair = 0; 2 * pair < headDim; pair += 1) {
      const angle = (start + row) * rate(pair, headDim);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let even = row * width + 2 * pair; even < (row + 1) * width; even += headDim) {
        const [first, second] = [x[even], x[even + 1]];
        x[even] = first * cos - second * sin;
        x[even + 1] = first * sin + second * cos;
      }
    }
  }
}

/** Sinusoidal positions of one place, (D,): sines in even channels, cosines in odd ones, rounded to float32 as Python's. @type {(place: number, width: number) => Float64Array} */
export function sinusoids(place, width) {
  return Float64Array.from({ length: width }, (_, channel) => {
    const angle = place * rate(Math.floor(channel / 2), width);
    return Math.fround(channel % 2 ? Math.cos(angle) : Math.sin(angle));
  });
}

/** x + y, number by number, into x. @type {(x: Float64Array, y: Float64Array) => Float64Array} */
export function addInPlace(x, y) {
  for (let i = 0; i < x.length; i += 1) x[i] += y[i];
  return x;
}

/** First x, then y. @type {(x: Float64Array, y: Float64Array) => Float64Array} */
export function concatenated(x, y) {
  const both = new Float64Array(x.length + y.length);
  both.set(x);
  both.set(y, x.length);
  return both;
}
