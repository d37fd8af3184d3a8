"""Length buckets: which shapes the batches of a corpus have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# XLA compiles each shape once: a shape of its own must save the cells of a quarter of a batch an epoch, and more where
# there would be more shapes than this.
BATCHES_PER_SHAPE = 0.25
MAX_SHAPES = 24
MAX_CANDIDATES = 256


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
    lengths: np.ndarray,
    batch_tokens: int,
    max_length: int,
    rows_multiple_of: int,
    edges: Sequence[int] | None = None,
    max_shapes: int = MAX_SHAPES,
) -> tuple[Bucket, ...]:
    """The buckets of a corpus, shortest first, none of them empty.

    Args:
        lengths: int (N,), longer side of each pair, end token included; none is above `max_length`.
        batch_tokens: rows x length of a bucket is at most this.
        max_length: the last edge.
        rows_multiple_of: rows of each bucket are a multiple of this.
        edges: ascending lengths; `max_length` is added. If not given, those of the corpus' own lengths that save more
            padding than a shape costs.
        max_shapes: largest number of buckets, if `edges` is not given.

    Returns:
        A tuple of `Bucket`.
    """
    if edges is not None:
        ladder = [*(int(edge) for edge in edges if edge < max_length), max_length]
    else:
        own = np.unique(lengths)
        ladder = own[np.linspace(0, len(own) - 1, min(len(own), MAX_CANDIDATES)).round().astype(int)].tolist()
    up_to = np.searchsorted(np.sort(lengths), ladder, side="right").tolist()

    def bucket(first: int, last: int) -> Bucket:
        """All pairs above edge `first - 1` and up to edge `last - 1`."""
        rows = batch_tokens // ladder[last - 1] // rows_multiple_of * rows_multiple_of
        return Bucket(ladder[last - 1], rows, up_to[last - 1] - (up_to[first - 1] if first else 0))

    if edges is not None:
        chosen = [bucket(index, index + 1) for index in range(len(ladder))]
        return tuple(one for one in chosen if one.pairs)
    shape_cost = BATCHES_PER_SHAPE * batch_tokens
    while len(buckets := _cheapest(bucket, len(ladder), shape_cost)) > max_shapes:
        shape_cost *= 2
    return tuple(buckets)


def _cheapest(bucket: Callable[[int, int], Bucket], edges: int, shape_cost: float) -> list[Bucket]:
    """The buckets with the fewest cells, where each costs so many cells besides its own."""
    best: list[tuple[float, list[Bucket]]] = [(0.0, [])]  # of all pairs up to edge 0, 1, ...: the cost, and how
    for last in range(1, edges + 1):
        ways = [(best[first], bucket(first, last)) for first in range(last)]
        best.append(
            min(
                ((cost + new.cells + shape_cost, [*old, new]) for (cost, old), new in ways),
                key=lambda way: way[0],
            )
        )
    return best[-1][1]
