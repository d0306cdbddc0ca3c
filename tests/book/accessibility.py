"""What axe finds on a page, in a fraction of the time: contrast is looked at once for each kind of text.

Nine tenths of axe's time go into the contrast of each piece of text, thousands on a page, most of them words of code in
a handful of colours. What axe makes of a text follows from how it and all around it are painted. So of those that are
painted alike, in elements that are painted alike, the first five and the last are enough: five, for axe says nothing of
a text that is out of sight. One letter is a kind of its own, for of that it says nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

MARK = """() => {
    for (const one of document.querySelectorAll("[data-look-at-contrast]"))
        one.removeAttribute("data-look-at-contrast");
    const PAINT = ["color", "background-color", "background-image", "font-size", "font-weight", "opacity",
        "text-shadow", "position", "float", "visibility", "filter", "mix-blend-mode", "text-decoration-line",
        "-webkit-text-fill-color"];
    const numbers = new Map(), kinds = new Map();
    const visit = (element, above) => {
        const style = getComputedStyle(element);
        const painted = [above, element.localName, ...PAINT.map((name) => style.getPropertyValue(name))];
        for (const part of ["::before", "::after"]) {
            const inside = getComputedStyle(element, part);
            if (inside.content !== "none") painted.push(part, inside.backgroundColor, inside.width, inside.height);
        }
        const key = painted.join("|");
        if (!numbers.has(key)) numbers.set(key, numbers.size);
        const kind = numbers.get(key);
        const isShown = !["script", "style", "title"].includes(element.localName);
        if (isShown && [...element.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim())) {
            const alike = [kind, element.checkVisibility(), element.textContent.trim().length === 1].join();
            if (!kinds.has(alike)) kinds.set(alike, []);
            kinds.get(alike).push(element);
        }
        for (const child of element.children) visit(child, kind);
    };
    visit(document.body, "");
    for (const alike of kinds.values())
        for (const one of [...alike.slice(0, 5), alike.at(-1)]) one.setAttribute("data-look-at-contrast", "");
    for (const field of document.querySelectorAll("input, select, textarea, [role]"))
        field.setAttribute("data-look-at-contrast", "");
    axe.configure({rules: [{id: "color-contrast", selector: "[data-look-at-contrast]"}]});
}"""
RUN = """(rules) => axe.run({
    preload: false,  // or it loads the styles itself
    resultTypes: ["violations"],  // or it describes all that is right
    ...(rules && {runOnly: rules}),
}).then((found) => found.violations)"""
OF_COLOURS = ("color-contrast", "link-in-text-block")
"""The rules that look at how things are painted."""


def serious_findings(page: Page, rules: Sequence[str] | None = None) -> list[str]:
    """What a reader with a disability would stumble over on the page as it is now, by these rules of axe or by all."""
    page.evaluate(Axe().axe_script)
    page.evaluate(MARK)
    return [
        f"{rule['impact']}: {rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in page.evaluate(RUN, rules)
        if rule["impact"] in ("serious", "critical")
    ]
