// @ts-check
/* Predict: the fields of a question, and one button that opens its answer. What a reader writes is kept nowhere. */
(() => {
  /** @typedef {HTMLInputElement} Input */
  /** @param {Element | null | undefined} one */
  const words = (one) => one?.textContent?.trim().replace(/\s+/g, " ") ?? "";

  /** What a reader wrote or chose, with what was asked where there is more than one field.
   * @param {HTMLFormElement} form */
  const answers = (form) => {
    const fields = [...form.querySelectorAll(".predict-field")];
    return fields.flatMap((field) => {
      const asked = words(field.querySelector("legend, label[for]"));
      const written = /** @type {Input | null} */ (field.querySelector("input[type=text]"))?.value.trim();
      const given = written ?? words(field.querySelector("input:checked")?.nextElementSibling);
      const between = written === undefined ? " " : " = "; // a choice goes on with what was asked
      return given ? [fields.length > 1 ? `${asked}${between}${given}` : given] : [];
    });
  };

  for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form.predict-form"))) {
    const box = form.parentElement;
    const fold = /** @type {HTMLDetailsElement | null} */ (box?.querySelector("details.predict-answer"));
    const opened = /** @type {HTMLElement | null} */ (fold?.querySelector(".predict-opened"));
    const said = /** @type {HTMLElement | null} */ (fold?.querySelector(".predict-said"));
    const nudge = /** @type {HTMLElement | null} */ (form.querySelector(".predict-nudge"));
    if (!fold || !opened || !said || !nudge) continue;
    const open = () => {
      const given = answers(form);
      nudge.textContent = "";
      fold.open = true;
      said.hidden = given.length === 0;
      said.textContent = `${said.dataset.said} ${given.join("; ")}.`;
      opened.focus();
    };
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (answers(form).length > 0) return open();
      nudge.textContent = nudge.dataset.said ?? "";
      /** @type {Input | null} */ (form.querySelector("input"))?.focus();
    });
    form.querySelector(".predict-look")?.addEventListener("click", open);
    fold.addEventListener("toggle", () => {
      if (!fold.open) /** @type {HTMLElement | null} */ (form.querySelector("button"))?.focus();
    });
  }
})();
