"""A Matplotlib figure that a notebook shows by itself."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that belongs to no window and to no list of pyplot's, so that thousands can be drawn and forgotten.

    As the last expression of a cell it is shown, with or without `%matplotlib inline`; elsewhere, `savefig("x.png")`.
    """

    def __init__(self, width: float, height: float, **options: Any) -> None:
        super().__init__(figsize=(width, height), layout="constrained", **options)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
