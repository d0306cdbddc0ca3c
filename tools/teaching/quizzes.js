// @ts-check
/* A quiz: the first answer to each question counts; a question with variants offers other numbers. */
(() => {
  const questions = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".question")]);
  const score = document.querySelector(".score");
  let numAnswered = 0;
  let numRight = 0;
  for (const question of questions) {
    const variants = /** @type {HTMLElement[]} */ ([...question.querySelectorAll(".variant")]);
    let now = Math.floor(Math.random() * variants.length);
    const show = () => variants.forEach((one, i) => { one.hidden = i !== now; });
    show();
    if (variants.length > 1) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Other numbers";
      button.addEventListener("click", () => {
        now = (now + 1) % variants.length;
        show();
      });
      question.append(button);
    }
    let isAnswered = false;
    question.addEventListener("click", (event) => {
      const chosen = /** @type {HTMLElement} */ (event.target).closest("summary")?.parentElement;
      if (!chosen || isAnswered) return;
      isAnswered = true;
      numAnswered += 1;
      numRight += Number(chosen.classList.contains("right"));
      if (score) score.textContent = `${numRight} of ${numAnswered} right at the first try.`;
    });
  }
})();
