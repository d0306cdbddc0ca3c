// @ts-check
/* Where a search result takes the words around it from: a script for each page, which a page on a disk may load, too. */
Search.texts = {};
Search.asked = {};
Search.textOf = (page) => {
  Search.asked[page] ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.content_root}_static/texts/${page}.js`;
    script.onload = () => done(Search.texts[page]);
    script.onerror = () => done("");
    document.head.append(script);
  });
  return Search.asked[page];
};
