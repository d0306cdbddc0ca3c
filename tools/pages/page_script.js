// @ts-check
/* What the pages of the book do beside the theme: the last part of the one script that tools/pages/finish.py joins. */
(() => {
  /** @type {Record<string, () => void>} */
  const clicks = { "toggleFullScreen()": () => toggleFullScreen(), "window.print()": () => window.print() };
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-click]")))
    button.addEventListener("click", () => clicks[button.dataset.click ?? ""]());

  /* What scrolls can be reached by the keyboard, and what does not is no tab stop. */
  /** @type {NodeListOf<HTMLElement>} */
  const frames = document.querySelectorAll("div.math, div.number-table, .pst-scrollable-table-container");
  const look = () => {
    for (const one of frames) {
      if (one.scrollWidth > one.clientWidth) {
        one.tabIndex = 0;
      } else one.removeAttribute("tabindex");
    }
  };
  look();
  addEventListener("resize", look);

  /* The start page begins with one map, until something is changed, or the model cannot run and shows its stored runs. */
  const front = document.querySelector(".front:has(.front-instrument)");
  if (front && !location.hash.startsWith("#live=")) {
    const watch = new MutationObserver(() => {
      if (!front.querySelector('.front-instrument :is([aria-disabled="false"], table:not([hidden]))')) return;
      front.classList.remove("front-shut", "front-untouched");
      watch.disconnect();
    });
    front.classList.add("front-shut", "front-untouched");
    watch.observe(front, { subtree: true, attributes: true, attributeFilter: ["aria-disabled", "hidden"] });
  }

  /* A link to what is in a closed fold opens it, and the folds around it; so it does on the start page. */
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    let fold = target?.closest("details") ?? null;
    const closed = fold !== null && !target?.checkVisibility();
    if (target?.closest(".after-first")) front?.classList.remove("front-shut");
    for (; fold; fold = fold.parentElement?.closest("details") ?? null) fold.open = true;
    if (closed) target?.scrollIntoView();
  };
  reveal();
  addEventListener("hashchange", reveal);
  document.fonts.ready.then(look);
})();
