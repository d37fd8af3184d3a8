"""How far long work has come: one line in a terminal, and nothing in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_SECONDS = 0.2  # between two drawings


class Progress:
    """`with Progress("translating", total) as progress: progress(done)`; draws on standard error.

    Args:
        title: What is being done.
        total: How much there is to do; `None` if nobody knows.
        unit: What is counted.
        stream: Where to draw, if it is a terminal; standard error if not given.
    """

    def __init__(self, title: str, total: int | None, unit: str = "lines", stream: TextIO | None = None) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.stream = sys.stderr if stream is None else stream
        self.began, self.drawn, self.done = time.monotonic(), -_SECONDS, 0

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int) -> None:
        """So much is done."""
        self.done = done
        now = time.monotonic()
        if self.stream.isatty() and now - self.drawn >= _SECONDS:
            self.drawn = now
            self._draw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.stream.isatty():
            self._draw()
            self.stream.write("\n")
            self.stream.flush()

    def _draw(self) -> None:
        seconds = time.monotonic() - self.began
        rate = self.done / seconds if seconds > 0 else 0.0
        text = f"{self.done:,} {self.unit}, {rate:,.1f} a second"
        if self.total:
            share = min(self.done / self.total, 1.0)
            left = (self.total - self.done) / rate if rate else 0.0
            bar = "█" * round(share * _WIDTH) + "·" * (_WIDTH - round(share * _WIDTH))
            text = f"{bar} {share:4.0%}  {text}, {left:,.0f} s left"
        self.stream.write(f"\r\x1b[2K{self.title}  {text}")
        self.stream.flush()
