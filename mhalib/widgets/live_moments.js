// @ts-check
/* A slider over the moments of a model's training, under a curve of what it gets right. */
/** @import * as T from "./types" */
import { classes, make, svg } from "./shared.js";

const [WIDTH, HEIGHT, EDGE] = [320, 64, 8];

/**
 * The slider, if the model has moments. The last moment is where it begins.
 * @param {T.LiveFacts} facts
 * @param {(moment: number) => void} changed
 */
export function momentsOf({ steps, right = [] }, changed) {
  if (!steps) return null;
  const css = classes("live-model");
  const last = steps.length - 1;
  const x = (/** @type {number} */ i) => EDGE + (i / last) * (WIDTH - 2 * EDGE);
  const y = (/** @type {number} */ share) => HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE);
  const here = svg("circle", { r: 5, class: css("here") });
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `right answers on unseen lists, from ${inPercent(right[0])} to ${inPercent(right[last])}` },
    svg("polyline", { points: right.map((share, i) => `${x(i)},${y(share)}`).join(" "), class: css("curve") }),
    here,
  );
  const slider = make("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "moment of the training" });
  slider.addEventListener("input", () => changed(slider.valueAsNumber));
  const told = make("output", { class: css("note") });
  /** @param {number} moment */
  function draw(moment) {
    slider.value = String(moment);
    here.setAttribute("cx", String(x(moment)));
    here.setAttribute("cy", String(y(right[moment])));
    told.textContent = `after ${steps?.[moment]} steps of training: ${inPercent(right[moment])} right on unseen lists`;
    slider.setAttribute("aria-valuetext", told.textContent);
  }
  const whole = make("div", { class: css("moments"), role: "group", "aria-label": "training" }, make("div", {}, drawing, slider), told);
  return { whole, draw };
}

/** @type {(share: number) => string} */
const inPercent = (share) => `${Math.round(100 * share)} %`;
