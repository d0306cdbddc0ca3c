// @ts-check
/* Ways through the book: which one the reader is on, and what is read. Both stay on the reader's own machine. */
(() => {
  const KEY = "ways";
  /** @typedef {{ way?: string, read: string[] }} Kept */
  /** @returns {Kept} */
  const kept = () => {
    try {
      const { way, read } = JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
      const names = Array.isArray(read) ? read.filter((name) => typeof name === "string") : [];
      return { way: typeof way === "string" ? way : undefined, read: names };
    } catch {
      return { read: [] }; // storage is off, or somebody else wrote there
    }
  };
  /** @param {Kept} now */
  const keep = (now) => {
    try {
      localStorage.setItem(KEY, JSON.stringify(now));
    } catch {
      /* a private window: the address still carries the way */
    }
  };
  /** @param {string} page @param {boolean} done */
  const tick = (page, done) => {
    const now = kept();
    keep({ ...now, read: [...now.read.filter((name) => name !== page), ...(done ? [page] : [])] });
  };

  /** Shut the deeper sections, each behind its heading; a link into one, and a search in the page, opens it. */
  const passOver = () => {
    for (const section of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("section.deeper"))) {
      const [heading, ...rest] = section.children;
      const inside = document.createElement("div");
      const button = document.createElement("button");
      const chip = heading.querySelector(".deeper-chip");
      if (!chip) continue;
      button.type = "button";
      button.className = "deeper-chip";
      button.append(...chip.childNodes);
      chip.replaceWith(button);
      inside.append(...rest);
      section.append(inside);
      /** @param {boolean} isOpen */
      const show = (isOpen) => {
        inside.hidden = !isOpen;
        if (!isOpen) inside.setAttribute("hidden", "until-found");
        button.setAttribute("aria-expanded", String(isOpen));
      };
      const follow = () => {
        const target = document.getElementById(location.hash.slice(1));
        if (!target || !section.contains(target)) return;
        show(true);
        target.scrollIntoView();
      };
      button.addEventListener("click", () => show(inside.hasAttribute("hidden")));
      inside.addEventListener("beforematch", () => show(true));
      window.addEventListener("hashchange", follow);
      show(false);
      follow();
    }
  };

  /** Have the foot of the page lead along the way, and a button leave it. @param {HTMLElement} line @param {string} leave */
  const followed = (line, leave) => {
    const next = line.querySelector("a");
    const foot = /** @type {HTMLAnchorElement | null} */ (document.querySelector("a.right-next"));
    const title = foot?.querySelector(".prev-next-title");
    if (next && foot && title) [foot.href, title.textContent] = [next.href, next.textContent];
    const behind = /** @type {HTMLAnchorElement | null} */ (document.querySelector("a.left-prev"));
    const named = behind?.querySelector(".prev-next-title");
    if (behind && named && line.dataset.back) [behind.href, named.textContent] = [line.dataset.back, line.dataset.title ?? ""];
    const button = document.createElement("button");
    button.type = "button";
    button.className = "leave-way";
    button.textContent = leave;
    button.addEventListener("click", () => {
      keep({ ...kept(), way: undefined });
      location.replace(location.pathname);
    });
    line.append(" ", button);
  };

  const asked = new URLSearchParams(location.search).get("way");
  const known = asked && /^[a-z]+$/.test(asked) ? asked : null;
  if (known) keep({ ...kept(), way: known });
  const chosen = known ?? kept().way;

  /* Below a core: only the reader's own way, and reaching it ticks the page off. */
  const nav = /** @type {HTMLElement | null} */ (document.querySelector("nav.next-on-way"));
  if (nav) {
    const lines = /** @type {HTMLElement[]} */ ([...nav.children]);
    const mine = lines.find((line) => line.dataset.way === chosen);
    for (const line of lines) line.hidden = line !== mine; // who is on no way has the theme's own link
    if (mine) followed(mine, nav.dataset.leave ?? "");
    if (!mine || "passes" in mine.dataset) passOver();
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      tick(nav.dataset.page ?? "", true);
      observer.disconnect();
    }).observe(nav);
  }

  /* On the start page: its button leads onto the first way, unless another is chosen. */
  const start = /** @type {HTMLAnchorElement | null} */ (document.querySelector("a.front-start"));
  const first = /** @type {HTMLElement | null} */ (document.querySelector("details.way"));
  if (start && first) {
    start.addEventListener("click", () => {
      start.search = `?way=${kept().way ?? first.dataset.way}`;
    });
  }

  /* And the lists, ticked; a reader may tick by hand. */
  for (const list of /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details.way"))) {
    list.open = list.dataset.way === chosen;
    list.addEventListener("toggle", () => list.open && keep({ ...kept(), way: list.dataset.way }));
    for (const item of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("li[data-page]"))) {
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = kept().read.includes(item.dataset.page ?? "");
      box.setAttribute("aria-label", `${item.parentElement?.dataset.read} ${item.querySelector("a")?.textContent}`);
      box.addEventListener("change", () => {
        tick(item.dataset.page ?? "", box.checked);
        for (const other of document.querySelectorAll(`details.way li[data-page="${item.dataset.page}"] input`))
          /** @type {HTMLInputElement} */ (other).checked = box.checked;
      });
      item.prepend(box, " ");
    }
  }
})();
