// @ts-check
/* A figure in steps: a button that plays them, and a slider. The page has the last step; the others are files of their own. */
(() => {
  const PACE = 1100; // milliseconds for a step
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".figure-steps"))) {
    const { files = "", play = "", pause = "", step = "", choose = "", names } = place.dataset;
    const last = Number(place.dataset.steps);
    const pictures = [.../** @type {NodeListOf<HTMLImageElement>} */ (place.parentElement?.querySelectorAll("img") ?? [])].map((picture) => ({
      picture,
      whole: picture.src,
      theme: picture.classList.contains("only-dark") ? "dark" : "light",
    }));
    const button = document.createElement("button");
    const slider = document.createElement("input");
    const told = document.createElement("output");
    button.type = "button";
    Object.assign(slider, { type: "range", min: "1", max: String(last), value: place.dataset.opens ?? String(last) });
    slider.setAttribute("aria-label", choose);
    let clock = 0;

    const show = () => {
      told.value = names?.split("\n")[slider.valueAsNumber - 1] ?? step.replace("{n}", slider.value).replace("{m}", String(last));
      slider.setAttribute("aria-valuetext", told.value);
      button.textContent = clock ? pause : play;
      for (const { picture, whole, theme } of pictures) picture.src = slider.value === String(last) ? whole : `${files}-${theme}-${slider.value}.svg`;
    };
    const stop = () => {
      clearInterval(clock);
      clock = 0;
    };
    const next = () => {
      slider.stepUp();
      if (slider.value === String(last)) stop();
      show();
    };
    button.addEventListener("click", () => {
      if (clock) stop();
      else {
        if (slider.value === String(last)) slider.value = "1";
        clock = setInterval(next, PACE);
      }
      show();
    });
    slider.addEventListener("input", () => {
      stop();
      show();
    });
    place.append(button, slider, told);
    show();
  }
})();
