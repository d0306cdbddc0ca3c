"""Parts of a built page as a slide shows them: sentences, a figure, code, a table, an instrument."""

from __future__ import annotations

import html
import re

from bs4 import BeautifulSoup, Tag

from tools.teaching import embeds

LETTERS = 260  # of the sentences above a picture
LINES, COLUMNS, ROWS = 14, 84, 8  # of code, of a table
END = re.compile(r"""(?<=[.?!])(?P<after>(?:["”’)]|</\w+>)*)\s+(?=[\W]*[A-Z0-9<$])""")
BOLD = re.compile(r"<strong>(.*?)</strong>", re.DOTALL)


def classes_of(tag: Tag) -> list[str]:
    return [str(one) for one in tag.get_attribute_list("class") if one]


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text)).strip()


def inner(tag: Tag) -> str:
    """The HTML inside a tag, without what only a page needs: links, anchors, numbers to drag."""
    copy = BeautifulSoup(str(tag), "lxml").find(tag.name)
    assert isinstance(copy, Tag)
    for gone in copy.select(".headerlink, script, .deeper-chip, .mhalib-instrument, details, img.only-dark"):
        gone.decompose()
    for link in copy.select("a, span.std, span.pre, span.unbroken, span.drag, span.follows, span.caption-text"):
        link.unwrap()
    return copy.decode_contents().strip()


def sentences(text: str) -> list[str]:
    """HTML cut into sentences, nowhere within an element or in brackets."""
    found, begin = [], 0
    for end in END.finditer(text):
        piece = text[begin : end.end("after")]
        is_whole = piece.count("</") == len(re.findall(r"<\w[^>]*(?<!/)>", piece))
        is_open = plain(piece).count("(") > plain(piece).count(")")
        if is_whole and not is_open and not re.search(r"\b(?:et al|e\.g|i\.e)\.$", piece):
            found.append(piece.strip())
            begin = end.end()
    return [*found, text[begin:].strip()]


def within(found: list[str], letters: int = LETTERS) -> list[str]:
    """The first sentences that have room together; the very first in any case."""
    kept: list[str] = []
    for one in found:
        if kept and len(plain(" ".join([*kept, one]))) > letters:
            break
        kept.append(one)
    return kept


def key_sentences(paragraph: Tag) -> list[str]:
    """The sentences of a paragraph that hold at least three bold words, but for captions and questions."""
    text = inner(paragraph)
    if re.match(r"<strong>(Figure|Predict|Try)\b", text):
        return []
    return [one for one in sentences(text) if any(len(plain(bold).split()) > 2 for bold in BOLD.findall(one))]


def figure_html(figure: Tag) -> tuple[str, bool]:
    """A figure in the light colours with the first sentence of its caption, and whether it is too high to be below."""
    image = figure.select_one("img.only-light, img")
    caption = figure.select_one("figcaption p")
    assert isinstance(image, Tag), figure
    source = str(image["src"]).replace("../", "../../", 1)
    said = sentences(inner(caption))[:2] if caption else []  # Figure 4.3. What to see.
    high = int(str(image.get("height", "1"))) > 0.8 * int(str(image.get("width", "1")))
    alt = html.escape(str(image.get("alt", "")), quote=True)
    text = f'<figcaption class="caption">{" ".join(said)}</figcaption>'
    return f'<figure class="figure"><img src="{source}" alt="{alt}">{text}</figure>', high


def code_html(cell: Tag) -> str:
    """Code that the page shows, and what it prints, if both are short; empty otherwise."""
    texts = [
        part.get_text().rstrip() for part in cell.select(".cell_input pre, .output.stream pre, .output.text_plain pre")
    ]
    lines = "\n".join(texts).splitlines()
    if not texts or len(lines) > LINES or max(map(len, lines)) > COLUMNS or cell.select_one("details"):
        return ""
    return "".join(f"<pre>{html.escape(text)}</pre>" for text in texts if text)


def printed(answer: Tag) -> str:
    """What the code of an answer prints, if it is short; empty otherwise."""
    texts = [part.get_text().rstrip() for part in answer.select(".output.stream pre, .output.text_plain pre")]
    short = sum(len(text.splitlines()) for text in texts) <= LINES
    return "".join(f"<pre>{html.escape(text)}</pre>" for text in texts) if short else ""


def table_html(box: Tag) -> str:
    table = box if box.name == "table" else box.find("table")
    if not isinstance(table, Tag) or len(table.find_all("tr")) > ROWS:
        return ""
    return f"<table>{inner(table)}</table>"


def instrument_html(cell: Tag | BeautifulSoup, name: str) -> str:
    """A frame with the first instrument of a cell, whose file embeds.py makes."""
    own = cell.select_one(".mhalib-instrument")
    assert isinstance(own, Tag)
    source = f"../instruments/{embeds.file_name(name, int(str(own['data-number'])))}"
    link = f'<a class="in-print" href="{source}">The instrument, alive</a>'
    return f'<iframe data-src="{source}" title="Instrument"></iframe>{link}'


def listed(items: list[Tag], most: int = 5) -> str:
    found = [sentences(inner(item.find("p") or item))[0] for item in items[:most]]
    found[-1:] = [re.sub(";$", ".", one) for one in found[-1:]]  # more may have followed
    return f"<ul class='large'>{''.join(f'<li>{one}</li>' for one in found)}</ul>"
