"""How far long work has come: one line in a terminal, and nothing in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO, TypeVar

Item = TypeVar("Item")

_WIDTH = 30
_PATIENCE = 1.0  # seconds; what is done by then needs no bar
_SECONDS = 0.2  # between two drawings
_ITEMS = 256  # between two looks at the clock


class Progress:
    """`with Progress("translating", total) as progress: progress(done)`; draws on standard error.

    A stream that is no terminal, or that fails, is left alone: the work goes on.

    Args:
        title: What is being done.
        total: How much there is to do; `None` if nobody knows.
        unit: What is counted.
        stream: Where to draw, if it is a terminal; standard error if not given.
    """

    def __init__(self, title: str, total: int | None, unit: str = "lines", stream: TextIO | None = None) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.stream = sys.stderr if stream is None else stream
        self._is_live = _is_terminal(self.stream)
        self.began, self.drawn, self.done, self.note = time.monotonic(), 0.0, 0, ""

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, note: str = "") -> None:
        """So much is done; a note says what comes now, and is shown at once."""
        self.done, self.note = done, note
        now = time.monotonic()
        if note or (now - self.began >= _PATIENCE and now - self.drawn >= _SECONDS):
            self._draw()

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items one by one, counted as they are taken."""
        number = 0
        try:
            for number, item in enumerate(items, 1):
                yield item
                if number % _ITEMS == 0:
                    self(number)
        finally:
            self(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.drawn:
            self._draw(end="\n")

    def _draw(self, end: str = "") -> None:
        if not self._is_live:
            return
        self.drawn = time.monotonic()
        seconds = self.drawn - self.began
        rate = self.done / seconds if seconds > 0 else 0.0
        text = f"{self.done:,} {self.unit}, {rate:,.1f} a second"
        if self.total:
            share = min(self.done / self.total, 1.0)
            left = f", {(self.total - self.done) / rate:,.0f} s left" if rate else ""
            bar = "█" * round(share * _WIDTH) + "·" * (_WIDTH - round(share * _WIDTH))
            text = f"{bar} {share:4.0%}  {self.note or text + left}"
        elif self.note:
            text = self.note
        line = " ".join(f"{self.title}  {text}".splitlines())[: shutil.get_terminal_size().columns - 1]
        try:
            self.stream.write(f"\r\x1b[2K{line}{end}")
            self.stream.flush()
        except (OSError, ValueError):  # closed, gone, or of an encoding without these characters
            self._is_live = False


def _is_terminal(stream: Any) -> bool:
    """Whether there is one to draw on: windowed programs have no standard error, and some have put their own there."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
