"""The three kinds of statement that a cell of a chapter can make, and how a new run is held against the stored one.

exact          the default: stdout, text and tables are equal letter by letter.
measured       numbers may differ within a tolerance that the cell's metadata states; the words around them may not:
               {"measured": {"tolerance": 0.02}}               every number in the output, in the unit that is printed
               {"measured": {"tolerance": "5 %"}}              of the stored number
               {"measured": {"tolerance": [0.02, null, "5 %"]}} one for each line that is printed; null: exact
               {"measured": {"tolerance": 0.02, "counts": 3}}  whole numbers may differ too, by 3
               {"measured": {"tolerance": 0.3, "why": "..."}}  over a third of a number needs a reason
of this run    the tag `of-this-run`: timings, sentences of a model trained on the page, which of several heads won. It
               is executed, shown, marked on the page and not compared; an assertion guards what the text says of it.

A whole number without a percent sign is a count, and exact unless `counts` is given. White space is not compared in a
measured output, since a number that grows by a digit moves what is aligned with it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mhalib.widgets import _levels
from mhalib.widgets._codes import carried

OF_THIS_RUN = "of-this-run"
TIMING = "timing"  # beside OF_THIS_RUN: stored anew only where nothing else runs on the machine
MEASURED = "measured"
KEYS = {"tolerance", "counts", "why"}
WIDE = 1 / 3  # of the stored number: a wider tolerance must be argued
ROUNDING = 1e-9  # of decimal fractions in binary

NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])(?!\.\d)(?P<percent> ?%)?",
    re.IGNORECASE,
)
STATE = re.compile(r'(<script type="application/json">)(.*?)(</script>)', re.DOTALL)
BAR = re.compile(r' style="background:linear-gradient[^"]*"')  # behind a number of mhalib.number_table
NOT_COMPARED = "application/vnd.jupyter.widget-view+json"  # its model's id is drawn anew in each run


@dataclass(frozen=True)
class Tolerance:
    """How far the numbers of one line may be off: `absolute` in the printed unit, `relative` to the stored number."""

    absolute: float = 0.0
    relative: float = 0.0
    counts: float = 0.0

    def of(self, stored: Number) -> float:
        if stored.is_count:
            return self.counts
        return max(self.absolute, self.relative * abs(stored.value))

    def __str__(self) -> str:
        found = [f"±{self.absolute:g}"] if self.absolute else []
        found += [f"±{100 * self.relative:g} %"] if self.relative else []
        found += [f"±{self.counts:g} for counts"] if self.counts else []
        return ", ".join(found) or "exact"


@dataclass(frozen=True)
class Number:
    """A number as it is printed."""

    text: str
    percent: bool = False

    @property
    def value(self) -> float:
        return float(self.text.replace("−", "-").replace(",", ""))

    @property
    def is_count(self) -> bool:
        return not self.percent and not re.search(r"[.e]", self.text, re.IGNORECASE)


@dataclass(frozen=True)
class Measured:
    """The entry `measured` in a cell's metadata."""

    lines: tuple[Tolerance, ...]
    one_for_all: bool
    why: str = ""

    def over(self, lines: Sequence[str]) -> Iterator[tuple[str, Tolerance]]:
        """Each line with its tolerance."""
        return zip(lines, itertools.repeat(self.lines[0]) if self.one_for_all else self.lines, strict=False)

    def __str__(self) -> str:
        said = list(dict.fromkeys(str(line) for line in self.lines))
        return "; ".join(said) + (f" ({self.why})" if self.why else "")


def measured(metadata: dict[str, Any]) -> Measured | None:
    """What a cell's metadata states, or `None` for a cell that is exact; `ValueError` if it cannot be read."""
    stated = metadata.get(MEASURED)
    if stated is None:
        return None
    if not isinstance(stated, dict) or "tolerance" not in stated or not set(stated) <= KEYS:
        raise ValueError(f"measured={stated!r} must be a mapping with tolerance, and perhaps counts and why")
    counts = stated.get("counts", 0)
    if isinstance(counts, bool) or not isinstance(counts, (int, float)) or counts < 0:
        raise ValueError(f"measured.counts={counts!r} must be a number that is not negative")
    tolerance = stated["tolerance"]
    entries = tolerance if isinstance(tolerance, list) else [tolerance]
    return Measured(
        tuple(_tolerance(entry, counts) for entry in entries), not isinstance(tolerance, list), stated.get("why", "")
    )


def _tolerance(entry: object, counts: float) -> Tolerance:
    if entry is None:
        return Tolerance()
    if isinstance(entry, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", entry)):
        return Tolerance(relative=float(found[1]) / 100, counts=counts)
    if isinstance(entry, bool) or not isinstance(entry, (int, float)) or not 0 <= entry < float("inf"):
        raise ValueError(f'measured.tolerance: {entry!r} must be a number such as 0.02, a share such as "5 %", or null')
    return Tolerance(absolute=float(entry), counts=counts)


def parted(line: str) -> tuple[list[str], list[Number]]:
    """The words between the numbers, with white space folded, and the numbers."""
    words, numbers, end = [], [], 0
    for found in NUMBER.finditer(line):
        percent = found["percent"] or ""
        words.append(line[end : found.start()])
        numbers.append(Number(found[0].removesuffix(percent) if percent else found[0], bool(percent)))
        end = found.end() - len(percent)
    words.append(line[end:])
    return [" ".join(each.split()) for each in words], numbers


def differences(stored: str, computed: str, stated: Measured | None, what: str = "output") -> list[str]:
    """Why `computed` does not confirm `stored`, a sentence each; empty if it does."""
    if stated is None:
        return [] if stored == computed else [f"{what}: stored\n{stored}\ncomputed\n{computed}"]
    if "<script" in stored + computed:
        stored, computed = opened(stored), opened(computed)
    old, new = _lines(stored), _lines(computed)
    if len(old) != len(new):
        return [f"{what}: {len(old)} lines stored, {len(new)} computed:\n{computed}"]
    if not stated.one_for_all and len(stated.lines) != len(old):
        return [f"{what}: measured.tolerance has {len(stated.lines)} entries for {len(old)} lines"]
    found: list[str] = []
    for number, ((line, tolerance), again) in enumerate(zip(stated.over(old), new, strict=True), 1):
        found += _line_differences(line, again, tolerance, f"{what}, line {number}")
    return found


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _line_differences(stored: str, computed: str, tolerance: Tolerance, what: str) -> Iterator[str]:
    (old_words, old), (new_words, new) = parted(stored), parted(computed)
    if old_words != new_words:
        yield f"{what}: the words differ: stored {stored.strip()[:300]!r}, computed {computed.strip()[:300]!r}"
        return
    for place, (a, b) in enumerate(zip(old, new, strict=True)):
        allowed = tolerance.of(a)
        if a.text != b.text and not abs(a.value - b.value) <= allowed + ROUNDING * max(1.0, abs(a.value)):
            before = " ".join(old_words[: place + 1])[-40:].strip()
            yield f"{what}: {before!r} stored {a.text}, computed {b.text}, tolerance {allowed:g}"


def used(
    metadata: dict[str, Any], stored: Sequence[dict[str, Any]], computed: Sequence[dict[str, Any]]
) -> tuple[float, str]:
    """The largest part of its tolerance that a number used, and which number; (0, "") if none has a tolerance."""
    stated = measured(metadata)
    if stated is None or is_of_this_run(metadata):
        return 0.0, ""
    old, new = texts(stored), texts(computed)
    found = [(0.0, "")]
    for kind in old:
        if stated.one_for_all or kind == _main(old):
            lines = zip(stated.over(_lines(opened(old[kind]))), _lines(opened(new.get(kind, ""))), strict=False)
            for (line, tolerance), again in lines:
                for a, b in zip(parted(line)[1], parted(again)[1], strict=False):
                    if allowed := tolerance.of(a):
                        found.append((abs(a.value - b.value) / allowed, f"stored {a.text}, computed {b.text}"))
    return max(found)


def too_wide(stored: str, stated: Measured | None) -> list[str]:
    """The numbers whose tolerance is over a third of them, where the metadata does not say why."""
    if stated is None or stated.why:
        return []
    return [
        f"{number.text} has a tolerance of {tolerance.of(number):g}, over a third: narrow it, or say why in measured"
        for line, tolerance in stated.over(_lines(opened(stored)))
        for number in parted(line)[1]
        if tolerance.of(number) > WIDE * abs(number.value)
    ]


def holds_numbers(stored: str, stated: Measured) -> bool:
    """Whether any number in an output has a tolerance."""
    pairs = stated.over(_lines(opened(stored)))
    return any(tolerance.of(number) for line, tolerance in pairs for number in parted(line)[1])


def opened(html: str) -> str:
    """HTML in which the state of an instrument is written out: packed weights and maps as numbers, an entry to a
    line."""
    return STATE.sub(lambda found: found[1] + "\n" + _state(found[2]) + "\n" + found[3], html)


def _state(text: str) -> str:
    state = json.loads(text)
    lines = []
    for key, value in state.items():
        if key in ("packed", "sums") and "sizes" in state:
            value = " ".join(f"{number:.3f}" for number in carried(state, key))
        elif key == "maps":
            value = _decimals(_levels.weights_of(_levels.codes_of(value)))
        elif key == "details":
            value = "\n".join(_strongest(one, state["top_keys"]) for one in value)
        elif key == "numbers" and "places" in state:
            value = "\n".join(_units(*one) for one in zip(value, state["places"], strict=True))
        elif key in ("gates", "span"):
            value = " ".join(f"{number / 1000:.3f}" for number in value)
        lines.append(f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines)


def _decimals(numbers: NDArray[np.float64]) -> str:
    return " ".join("none" if np.isnan(number) else f"{number:.3f}" for number in numbers.flat)


def _strongest(detail: str, count: int) -> str:
    """The strongest keys of a head of a wall, with their weights."""
    keys, numbers = _levels.keys_of(detail, count)
    return f"{' '.join(map(str, keys.flat))} {_decimals(numbers)}"


def _units(numbers: list[int | None], places: int) -> str:
    """Numbers of a wall's heads, which it carries as whole ones."""
    return " ".join("none" if one is None else f"{one / 10**places:.{places}f}" for one in numbers)


def texts(outputs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What of a cell's outputs is compared: streams by name, joined, each kind of data in order, how many pictures. Not
    the bars of a table: they are made of the numbers in front of them."""
    found: dict[str, str] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            found[output["name"]] = found.get(output["name"], "") + "".join(output["text"])
        elif output["output_type"] == "error":
            found["error"] = f"{output['ename']}: {output['evalue']}"
        for kind, value in output.get("data", {}).items():
            if kind.startswith("image/"):
                found[kind] = found.get(kind, "") + "a picture\n"
            elif kind != NOT_COMPARED:
                found[kind] = found.get(kind, "") + BAR.sub("", "".join(value)) + "\n"
    return found


def is_of_this_run(metadata: dict[str, Any]) -> bool:
    return OF_THIS_RUN in metadata.get("tags", [])


def unconfirmed(
    metadata: dict[str, Any], stored: Sequence[dict[str, Any]], computed: Sequence[dict[str, Any]]
) -> list[str]:
    """Why the outputs `computed` do not confirm the `stored` ones of a cell with this metadata; empty if they do."""
    if is_of_this_run(metadata):
        return []
    stated = measured(metadata)
    old, new = texts(stored), texts(computed)
    if set(old) != set(new):
        return [f"outputs: stored {', '.join(old) or 'none'}, computed {', '.join(new) or 'none'}"]
    found = []
    for kind in old:
        applies = stated if stated is None or stated.one_for_all or kind == _main(old) else None
        found += differences(old[kind], new[kind], applies, kind) + too_wide(old[kind], applies)
    return found


def _main(found: dict[str, str]) -> str:
    """The kind of output that a list of tolerances, one for each line, speaks of: what is printed, if anything is."""
    return next(kind for kind in ("stdout", "text/html", "text/plain", *found) if kind in found)
