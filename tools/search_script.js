/* Where a search result takes the words around it from: a script for each page, which a page on a disk may load, too. */
Search.texts = {};
Search.textOf = (page) =>
  new Promise((done) => {
    if (page in Search.texts) return done(Search.texts[page]);
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.content_root}_static/texts/${page}.js`;
    script.onload = () => done(Search.texts[page]);
    script.onerror = () => done("");
    document.head.append(script);
  });
