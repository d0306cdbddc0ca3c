"""How far the grading is and how long it takes: a bar in a terminal; elsewhere, as in a log, now and then a line."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Counts notebooks on standard error.

    Args:
        total: how many there are.
        done: how many of them were done before; they tell nothing of how long one takes.
        shown: whether to print at all.
    """

    def __init__(self, total: int, *, done: int = 0, shown: bool = True) -> None:
        terminal = shown and sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=done, unit="notebook", disable=not terminal, smoothing=0)
        self._total, self._before, self._done = total, done, done
        self._lines = shown and not terminal
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()

    def one_more(self) -> None:
        """One more notebook is done."""
        self._done += 1
        self._bar.update()
        now = time.monotonic()
        if self._lines and now - self._last >= SECONDS_BETWEEN_LINES and self._done < self._total:
            self._last, spent = now, now - self._start
            left = spent * (self._total - self._done) / (self._done - self._before)
            print(f"{self._done} of {self._total} notebooks, about {in_words(left)} left", file=sys.stderr, flush=True)


def in_words(seconds: float) -> str:
    """A time with as much precision as a guess deserves: 50 s, 7 min, 2 h 10 min."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
