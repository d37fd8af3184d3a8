"""Length buckets: which shapes the batches of a corpus have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEFAULT_EDGES = (
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    56,
    64,
    80,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
)

# Each shape is compiled once by XLA, so a shape of its own must save the cells of this many batches an epoch.
BATCHES_PER_SHAPE = 2


@dataclass(frozen=True)
class Bucket:
    """All pairs whose longer side lies between two edges: batches of one shape.

    Attributes:
        length: columns of each side; the longer side of a pair, end token included, fits.
        rows: rows of each batch.
        pairs: number of pairs.
    """

    length: int
    rows: int
    pairs: int

    @property
    def batches(self) -> int:
        """Number of batches an epoch; the last one may hold filler rows."""
        return -(-self.pairs // self.rows)

    @property
    def cells(self) -> int:
        """Number of cells of one side in all batches, padding included."""
        return self.batches * self.rows * self.length


@dataclass(frozen=True)
class BatchingReport:
    """What `make_dataset` made of a corpus.

    Attributes:
        pairs: pairs that every epoch shows exactly once.
        dropped: pairs that are left out since a side is longer than `max_length`.
        skipped: pairs that the corpus left out since a side is blank.
        buckets: the shapes, shortest first.
        padding: share of all cells, source and target, that hold padding.
    """

    pairs: int
    dropped: int
    skipped: int
    buckets: tuple[Bucket, ...]
    padding: float

    @property
    def batches(self) -> int:
        """Number of batches of every epoch."""
        return sum(bucket.batches for bucket in self.buckets)

    def __str__(self) -> str:
        shapes = ", ".join(f"{bucket.rows}x{bucket.length}" for bucket in self.buckets)
        return (
            f"{self.pairs} pairs in {self.batches} batches of {len(self.buckets)} shapes ({shapes}), "
            f"{self.padding:.1%} padding; {self.dropped} pairs dropped as too long, {self.skipped} skipped as blank"
        )


def make_buckets(
    lengths: np.ndarray, batch_tokens: int, max_length: int, rows_multiple_of: int, edges: Sequence[int] | None = None
) -> tuple[Bucket, ...]:
    """The buckets of a corpus, shortest first, none of them empty.

    Args:
        lengths: int (N,), longer side of each pair, end token included; none is above `max_length`.
        batch_tokens: rows x length of a bucket is at most this.
        max_length: the last edge.
        rows_multiple_of: rows of each bucket are a multiple of this.
        edges: ascending lengths. If not given, those of `DEFAULT_EDGES` that are worth a shape of their own.

    Returns:
        A tuple of `Bucket`.
    """
    ladder = [*(int(edge) for edge in (edges or DEFAULT_EDGES) if edge < max_length), max_length]
    up_to = np.searchsorted(np.sort(lengths), ladder, side="right").tolist()

    def bucket(first: int, last: int) -> Bucket:
        """All pairs above edge `first - 1` and up to edge `last - 1`."""
        rows = batch_tokens // ladder[last - 1] // rows_multiple_of * rows_multiple_of
        return Bucket(ladder[last - 1], rows, up_to[last - 1] - (up_to[first - 1] if first else 0))

    if edges is not None:
        chosen = [bucket(index, index + 1) for index in range(len(ladder))]
    else:
        # best[k]: the cheapest way to put all pairs up to edge k - 1 into buckets, and its cost in cells.
        best: list[tuple[int, list[Bucket]]] = [(0, [])]
        for last in range(1, len(ladder) + 1):
            ways = [(best[first], bucket(first, last)) for first in range(last)]
            best.append(
                min(
                    ((cost + new.cells + _shape_cost(new, batch_tokens), [*old, new]) for (cost, old), new in ways),
                    key=lambda way: way[0],
                )
            )
        chosen = best[-1][1]
    return tuple(one for one in chosen if one.pairs)


def _shape_cost(bucket: Bucket, batch_tokens: int) -> int:
    return BATCHES_PER_SHAPE * batch_tokens if bucket.pairs else 0
