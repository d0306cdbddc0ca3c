// @ts-check
/* A deck: arrow keys, space and clicks go on; an answer comes before the next slide; letters shrink where a slide is full. */
(() => {
  const slides = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".slide")]);
  const isOneByOne = () => matchMedia("(min-width: 700px)").matches;
  let now = Math.max(0, slides.findIndex((slide) => `#${slide.id}` === location.hash));

  function fit() {
    for (const slide of slides) {
      slide.style.fontSize = "";
      const inner = /** @type {HTMLElement} */ (slide.querySelector(".inner"));
      const boxes = [inner, ...slide.querySelectorAll("pre, .formula")];
      const isFull = () => inner.scrollHeight > inner.clientHeight + 1 || boxes.some((box) => box.scrollWidth > box.clientWidth + 1);
      for (let size = 0.95; isOneByOne() && isFull() && size > 0.5; size -= 0.05) slide.style.fontSize = `calc(${size} * var(--letters))`;
    }
  }
  function show(/** @type {number} */ to, isAnswered = false) {
    now = Math.min(slides.length - 1, Math.max(0, to));
    for (const [i, slide] of slides.entries()) slide.classList.toggle("now", i === now);
    slides[now].classList.toggle("answered", isAnswered);
    for (const frame of slides[now].querySelectorAll("iframe")) if (frame.dataset.src && !frame.src) frame.src = frame.dataset.src;
    history.replaceState(null, "", `#${slides[now].id}`);
  }
  function go(/** @type {number} */ step) {
    const hasAnswer = slides[now].querySelector(".later") && slides[now].classList.contains("answered") === step < 0;
    if (hasAnswer) show(now, step > 0);
    else show(now + step, step < 0);
  }
  const steps = new Map([["ArrowRight", 1], ["ArrowDown", 1], ["PageDown", 1], [" ", 1], ["Enter", 1], ["ArrowLeft", -1], ["ArrowUp", -1], ["PageUp", -1], ["Home", -1000], ["End", 1000]]);
  document.addEventListener("keydown", (event) => {
    const step = steps.get(event.key);
    const isOurs = event.target === document.body || event.target === document.documentElement;
    if (step === undefined || !isOneByOne() || !isOurs || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (Math.abs(step) > 1) show(step < 0 ? 0 : slides.length - 1);
    else go(step);
  });
  document.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button[data-step]");
    if (!(button instanceof HTMLElement)) return;
    go(Number(button.dataset.step));
    button.blur();
  });
  document.documentElement.classList.add("alive");
  fit();
  show(now);
  addEventListener("resize", fit);
  addEventListener("load", fit);
})();
