// @ts-check
/* Words of instruments in the page's language, exchanged as they are drawn. What the catalogue lacks stays as it is. */
(() => {
  /** @type {Record<string, string>} */
  const WORDS = {}; // tools/pages/book_language.py puts the catalogue here
  const NAMED = ["aria-label", "title", "placeholder"];
  const FIELD = /\{(\w+)\}/g;
  const known = new Map(Object.entries(WORDS));
  /** Phrases with values in them: {n} is a number, {PHRASE} a phrase that is exchanged, too, all else anything. */
  const forms = [...known].flatMap(([one, other]) => {
    const names = [...one.matchAll(FIELD)].map(([, name]) => name);
    if (!names.length) return [];
    const pieces = one.split(FIELD).map((piece, i) => (i % 2 ? (/^[nm]\d?$/.test(piece) ? "([-+−.,e\\d]+(?: · 10⁻[⁰¹²³⁴-⁹]+)?)" : "(.+?)") : piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")));
    return [{ names, other, read: new RegExp(`^${pieces.join("")}$`, "s") }];
  });
  /** @param {string} text @returns {string | undefined} */
  const phrase = (text) => {
    if (known.has(text)) return known.get(text);
    for (const { names, other, read } of forms) {
      const found = read.exec(text);
      if (!found) continue;
      const values = new Map(names.map((name, i) => [name, name === name.toUpperCase() ? phrase(found[i + 1]) : found[i + 1]]));
      if (![...values.values()].includes(undefined)) return other.replace(FIELD, (_, name) => values.get(name) ?? "");
    }
    return undefined;
  };
  /** A text as a whole, or sentence by sentence. @param {string} text */
  const said = (text) => {
    const [, before, inner, after] = /** @type {RegExpExecArray} */ (/^(\s*)(.*?)(\s*)$/s.exec(text));
    const parts = () => inner.split(/(?<=\.) /).map((part) => phrase(part) ?? part).join(" ");
    return inner && `${before}${phrase(inner) ?? parts()}${after}`;
  };
  /** What was put where: it is not exchanged again. @type {WeakMap<Node, string>} */
  const put = new WeakMap();
  /** @param {Text} node */
  const exchange = (node) => {
    if (put.get(node) === node.data) return;
    const now = said(node.data);
    if (!now || now === node.data) return;
    const option = node.parentElement?.closest("option");
    if (option && !option.hasAttribute("value")) option.setAttribute("value", option.value); // it stays what is chosen
    put.set(node, now);
    node.data = now;
  };
  /** @param {Element} element @param {string} name */
  const rename = (element, name) => {
    const old = element.getAttribute(name);
    const now = old && said(old);
    if (now && now !== old) element.setAttribute(name, now);
  };
  /** @param {Node} root */
  const all = (root) => {
    if (root instanceof Text) exchange(root);
    if (!(root instanceof Element) || ["SCRIPT", "STYLE"].includes(root.tagName)) return;
    for (const name of NAMED) rename(root, name);
    root.childNodes.forEach(all);
  };
  const watch = new MutationObserver((records) => {
    for (const { type, target, addedNodes, attributeName } of records) {
      if (type === "childList") addedNodes.forEach(all);
      else if (type === "characterData") all(target);
      else rename(/** @type {Element} */ (target), attributeName ?? "");
    }
  });
  for (const place of document.querySelectorAll(".mhalib-instrument")) {
    all(place);
    watch.observe(place, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: NAMED });
  }
})();
