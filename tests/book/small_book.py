"""A book of five pages in the form that Sphinx builds, for the tests of what is made of built pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from PIL import Image
from served import HTML

from tools.notebooks import notebooks
from tools.pages.mathml import mathml

PAGE = """\
<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="../_static/book.css">
</head><body>
<article class="bd-article">{article}</article></body></html>
"""
TOC = """\
format: jb-book
root: chapters/index
parts:
  - caption: "Part I · Begin"
    chapters:
      - file: chapters/01_first
        title: 1 · A first chapter
      - file: chapters/02_second
        title: 2 · A second chapter
  - caption: "Part IV · Go on"
    chapters:
      - file: chapters/03_third
        title: 3 · A third chapter
  - caption: The package
    chapters:
      - file: chapters/api
"""
WIDE = "x = " + " + ".join(f"f(number_{place})" for place in range(12)) + "  # its end"
SUM = " + ".join(f"w_{{{place}}} v_{{{place}}}" for place in range(40))
FILLED = "".join(f"<p>Paragraph {place} says little, but it fills its part of the page.</p>" for place in range(60))
INDEX = """\
<section id="book"><h1>A small book<a class="headerlink" href="#book">#</a></h1>
<p>Begin with <a href="01_first.html">chapter 1</a>, or with its <a href="01_first.html#sums">sums</a>; see the
<a href="../genindex.html">index</a>, or <a href="https://example.org/paper">a paper</a>.</p>
<section id="the-map"><h2>The map</h2><svg class="book-map" role="group" aria-label="Two chapters" viewbox="0 0 60 30">
<circle cx="15" cy="15" r="9"></circle><text x="15" y="15">1</text>
<a href="03_third.html"><circle cx="45" cy="15" r="9"></circle><text x="45" y="15">3</text></a></svg>
</section></section>
"""
FIRST = f"""\
<section id="a-first-chapter"><h1 data-chapter="1">A first chapter
<a class="headerlink" href="#a-first-chapter">#</a></h1>
<div class="cell tag_set-up tag_hide-input"><details class="admonition hide above-input"><summary>Show how</summary>
<div class="cell_input"><pre>install me</pre></div></details></div>
<p>With <span class="math notranslate nohighlight">{mathml("d = D/h")}</span>, each head is narrow.</p>
<nav class="next-on-way"><p data-way="weekend"><strong>A weekend, 1/3.</strong> Next: 2</p></nav>
<section id="sums"><h2>Sums &amp; scores<a class="headerlink" href="#sums">#</a></h2>
<div class="math notranslate nohighlight">
{mathml(SUM, display=True)}</div>
<div class="cell"><div class="cell_input"><div class="highlight-ipython3"><div class="highlight">
<pre><span class="k">if</span> <span class="mi">1</span> &lt; 2:
{WIDE}</pre></div></div></div></div>
<div class="cell tag_hide-input"><details class="admonition hide above-input"><summary>
<p class="collapsed admonition-title">Show how Figure 1.1 is drawn</p><p class="expanded">Hide it</p></summary>
<div class="cell_input"><div class="highlight-ipython3"><pre>draw_the_figure()</pre></div></div></details>
<div class="cell_output"><figure class="captioned" id="figure-1-1">
<img alt="Four squares &amp; a line" src="../_images/one.png">
<figcaption>Figure 1.1. What to see.</figcaption></figure></div></div>
<table border="1" class="docutils align-default"><thead><tr><th>name</th><th>value</th></tr></thead>
<tbody><tr><td align="left">a</td><td>1</td></tr></tbody></table>
<div class="mhalib-instrument" data-script="NotThere"><table><caption>Weights</caption><tbody>
<tr><td>0.25</td></tr></tbody></table><script type="application/json">{{"a": 1}}</script></div></section>
<section id="exercises"><h2>Exercises</h2><ol><li><p>Count the heads.</p><details><summary>Answer</summary>
<p>There are four heads.</p></details></li></ol>
<p>Compute it.</p><details><summary>Hint 1</summary><p>Begin with one head.</p></details>
<details><summary>Hint 2</summary><p>Then take two.</p></details>
<div class="cell tag_exercise tag_hide-cell"><details class="admonition hide above-input"><summary>
<p class="collapsed">Show a solution</p></summary><div class="cell_input"><pre>solve_it()</pre></div></details></div>
{FILLED}
</section></section>
"""
SECOND = """\
<section id="a-second-chapter"><h1>A second chapter<a class="headerlink" href="#a-second-chapter">#</a></h1>
<p>After <a href="01_first.html#figure-1-1">Figure 1.1</a> nothing is left.
<a href="01_first.html#gone">Gone</a>.</p></section>
"""
THIRD = """\
<section id="a-third-chapter"><h1>A third chapter<a class="headerlink" href="#a-third-chapter">#</a></h1>
<p>It is in a volume of its own; see <a href="01_first.html#sums">the sums</a>.</p>
<details><summary><code>f</code> need not be a dot product</summary><p>But it may.</p></details></section>
"""
API = """\
<section id="the-package"><h1>The package<a class="headerlink" href="#the-package">#</a></h1>
<p>Look it up.</p></section>
"""


ONE_CHAPTER = """\
format: jb-book
root: chapters/index
parts:
  - caption: Part I
    chapters:
      - file: chapters/{stem}
        title: 1 · {title}
"""


def sources(folder: Path, stem: str = "01_first", title: str = "First") -> Path:
    """A book of one chapter for Sphinx, with all settings of the real one, but for its pages; the folder of these."""
    shutil.copy(notebooks.ROOT / "_config.yml", folder)
    (folder / "_toc.yml").write_text(ONE_CHAPTER.format(stem=stem, title=title), encoding="utf-8")
    pages = folder / "chapters"
    pages.mkdir()
    shutil.copy(notebooks.CHAPTERS / "references.bib", pages)
    shutil.copytree(notebooks.CHAPTERS / "_static", pages / "_static")
    (folder / "tools").symlink_to(notebooks.ROOT / "tools", target_is_directory=True)
    return pages


PAGES = {"index": INDEX, "01_first": FIRST, "02_second": SECOND, "03_third": THIRD, "api": API}


def write(folder: Path) -> Path:
    """Write the pages below `folder`, with the real book's styles; the folder of the built book."""
    html = folder / "html"
    (html / "chapters").mkdir(parents=True)
    (html / "_images").mkdir()
    (html / "_static").symlink_to(HTML / "_static", target_is_directory=True)
    Image.new("RGB", (640, 480), "teal").save(html / "_images/one.png")  # the real book's figures are all SVG
    for name, article in PAGES.items():
        (html / f"chapters/{name}.html").write_text(PAGE.format(title=name, article=article), encoding="utf-8")
    (folder / "_toc.yml").write_text(TOC, encoding="utf-8")
    return html
