// @ts-check
/* Queries, keys and values have their colours in all formulas. Those of Part I can be touched, too: a symbol says what it
   is and which size it has, and lights up its part of the layer. */
(() => {
  const chapter = Number(/** @type {HTMLElement | null} */ (document.querySelector("h1[data-chapter]"))?.dataset.chapter ?? 99);
  const LAST = 9; // chapters 1 to 9 speak of one layer in one notation
  const hasNotes = chapter >= 1 && chapter <= LAST && document.documentElement.lang === "en";

  /** What a symbol is, its size in general and in the reader of chapter 0, and the parts that light up.
   * @type {Record<string, { says: string, size?: string, lit: string[] }>} */
  const SYMBOLS = {
    W_q: { says: "makes the queries", size: "D × D, in the reader 64 × 64", lit: ["W_q"] },
    W_k: { says: "makes the keys", size: "D × D, in the reader 64 × 64", lit: ["W_k"] },
    W_v: { says: "makes the values", size: "D × D, in the reader 64 × 64", lit: ["W_v"] },
    W_o: { says: "mixes what the heads bring back", size: "D × D, in the reader 64 × 64", lit: ["W_o"] },
    H_q: { says: "makes the queries of one head", size: "d × D, in the reader 16 × 64", lit: ["W_q"] },
    H_k: { says: "makes the keys of one head", size: "d × D, in the reader 16 × 64", lit: ["W_k"] },
    H_v: { says: "makes the values of one head", size: "d × D, in the reader 16 × 64", lit: ["W_v"] },
    H_o: { says: "the columns of the last matrix that one head has", size: "D × d, in the reader 64 × 16", lit: ["W_o"] },
    q: { says: "query: what a word asks for", lit: ["q"] },
    k: { says: "key: what a word can be found by", lit: ["k"] },
    v: { says: "value: what a word hands over", lit: ["v"] },
    s: { says: "score: how well a query and a key fit", lit: ["heads"] },
    w: { says: "weight: the share of a look; all of a row sum to 1", lit: ["heads"] },
    head: { says: "what a head brings back", size: "d numbers for each word, in the reader 16", lit: ["merged"] },
    o: { says: "output of the layer", size: "D numbers for each word, in the reader 64", lit: ["output"] },
    h: { says: "how many heads", size: "4 in the reader", lit: ["heads"] },
    D: { says: "width: how many numbers a word has", size: "64 in the reader", lit: ["words", "merged", "output"] },
    d: { says: "width of one head, D/h", size: "16 in the reader", lit: ["q", "k", "v"] },
    N: { says: "how many words", lit: ["words"] },
    B: { says: "how many sentences at once", lit: ["words"] },
    Q: { says: "how many words ask: rows of a map", lit: ["heads"] },
    K: { says: "how many words can be looked at: columns of a map", lit: ["heads"] },
  };
  /** @type {Record<string, string>} */
  const LETTERS = { "𝐪": "q", "𝐤": "k", "𝐯": "v", "𝐡": "head", "𝐨": "o", q: "q", k: "k", v: "v", s: "s", w: "w", h: "h", D: "D", d: "d", N: "N", B: "B", Q: "Q", K: "K" };

  /** Which symbol an element of a formula is, if any. @param {Element} element */
  const symbolOf = (element) => {
    const letter = element.textContent ?? "";
    if (element.localName !== "mi") return undefined;
    const matrix = element.closest("msub, msubsup");
    if (matrix?.firstElementChild?.textContent === "W") {
      const indices = [...matrix.children].slice(1).map((one) => one.textContent ?? "");
      const named = indices.map((one) => one.match(/[qkvo]/)?.[0]).find(Boolean);
      return named && `${indices.some((one) => /[ij\d]/.test(one)) ? "H" : "W"}_${named}`;
    }
    const indexed = element.parentElement?.closest("msub, msup, msubsup");
    if (indexed && !indexed.firstElementChild?.contains(element)) return undefined; // an index, not the thing
    return LETTERS[letter];
  };

  /** Every symbol of the page, in its order. @type {Map<Element, string>} */
  const symbols = new Map();
  for (const element of document.querySelectorAll("article math mi")) {
    const name = symbolOf(element);
    if (name) symbols.set(/^[WH]_/.test(name) ? /** @type {Element} */ (element.closest("msub, msubsup")) : element, name);
  }
  const asks = [...symbols.values()].includes("q"); // where nothing asks, a k is a count
  for (const [whole, name] of symbols) {
    if (hasNotes) whole.classList.add("symbol");
    if (asks || name !== "k") whole.classList.add(`symbol-${name.replace(/^[WH]_/, "")}`);
  }
  if (!hasNotes) return;

  const SVG = "http://www.w3.org/2000/svg";
  /** Parts of the small layer: left, bottom, width, height, in a picture of 96 by 92. @type {[string, number, number, number, number][]} */
  const PARTS = [["words", 0, 0, 96, 8], ["W_o", 24, 72, 48, 10], ["output", 24, 84, 48, 8], ["merged", 0, 60, 96, 8]];
  for (const [i, name] of ["q", "k", "v"].entries())
    PARTS.push([`W_${name}`, i * 34, 12, 28, 11], [name, i * 34, 26, 28, 6]);
  for (const i of [0, 1, 2, 3]) PARTS.push(["heads", i * 25, 36, 21, 20]);

  const note = document.createElement("div");
  note.className = "symbol-note";
  note.setAttribute("role", "status");
  note.hidden = true;
  document.body.append(note);

  /** @type {Element | null} */
  let touched = null;
  const close = () => {
    touched?.classList.remove("touched");
    touched = null;
    note.hidden = true;
  };

  /** @param {Element} element @param {string} name */
  const open = (element, name) => {
    close();
    touched = element;
    element.classList.add("touched");
    const { says, size, lit } = SYMBOLS[name];
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", "0 0 96 92");
    picture.setAttribute("aria-hidden", "true");
    for (const [part, left, bottom, width, height] of PARTS) {
      const box = document.createElementNS(SVG, "rect");
      for (const [key, value] of Object.entries({ x: left, y: 92 - bottom - height, width, height })) box.setAttribute(key, `${value}`);
      if (lit.includes(part)) box.setAttribute("class", "lit");
      picture.append(box);
    }
    const words = document.createElement("p");
    words.textContent = size ? `${says}. ${size}.` : `${says}.`;
    note.replaceChildren(picture, words);
    note.hidden = false;
    const at = element.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), document.documentElement.clientWidth - note.offsetWidth - 8);
    const below = at.bottom + 8 + note.offsetHeight < innerHeight;
    note.style.left = `${left}px`;
    note.style.top = `${below ? at.bottom + 8 : Math.max(8, at.top - 8 - note.offsetHeight)}px`;
  };

  /** By mouse a note is open while it is over a symbol; a finger opens and closes it. @param {Event} event */
  const pointed = (event) => {
    const whole = /** @type {Element} */ (event.target).closest(".symbol");
    const isMouse = /** @type {PointerEvent} */ (event).pointerType === "mouse";
    const name = whole && symbols.get(whole);
    if (!name || isMouse === (event.type === "click")) return;
    if (event.type === "pointerover" || (event.type === "click" && touched !== whole)) open(whole, name);
    else close();
  };
  for (const kind of ["pointerover", "pointerout", "click"]) document.addEventListener(kind, pointed);

  /* By keys: one stop above the first formula, from which arrow keys go through all symbols of formulas in lines of their own. */
  const inLines = [...symbols].filter(([whole]) => whole.closest("div.math"));
  const guide = document.createElement("button");
  guide.type = "button";
  guide.className = "symbols-guide";
  guide.textContent = "Arrow keys go through the symbols of the formulas";
  let at = -1;
  guide.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") close();
    if (!step) return;
    event.preventDefault();
    at = (at + step + inLines.length) % inLines.length;
    inLines[at][0].scrollIntoView({ block: "nearest" });
    open(...inLines[at]);
  });
  guide.addEventListener("blur", close);
  inLines[0]?.[0].closest("div.math")?.before(guide);
  addEventListener("scroll", () => document.activeElement !== guide && close(), { passive: true });
})();
