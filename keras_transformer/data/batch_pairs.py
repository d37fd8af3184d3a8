"""From a row of a batch back to the line of the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpus import DataError, ParallelCorpus


class BatchPair(NamedTuple):
    """A pair as it stands in the corpus: its line, from 1, and both sides, stripped.

    Lines are counted through all of the corpus' files, one after the other, with those that it skips.
    """

    line: int
    source: str
    target: str


def find_pairs(corpus: ParallelCorpus, dropped: np.ndarray, rows: Sequence[int]) -> list[BatchPair]:
    """Reads the corpus anew, up to the last of some rows: nothing is held for this while training runs.

    Args:
        corpus: what was tokenized.
        dropped: which pairs, counted from 0 without the skipped ones, have no row since they are too long; ascending.
        rows: which of the rows of token ids, from 0.

    Returns:
        As many pairs, in the order of `rows`.

    Raises:
        DataError: The corpus cannot be read any more, or is shorter than it was.
    """
    wanted = set(rows)
    found: dict[int, BatchPair] = {}
    too_long = set(dropped.tolist())
    row = 0
    for index, pair in enumerate(_numbered(corpus)):
        if len(found) == len(wanted):
            break
        if index in too_long:
            continue
        if row in wanted:
            found[row] = pair
        row += 1
    if len(found) < len(wanted):
        raise DataError(f"{corpus.name}: holds fewer pairs than when it was read: leave its files as they are.")
    return [found[row] for row in rows]


def _numbered(corpus: ParallelCorpus) -> Iterable[BatchPair]:
    for line, (source, target) in enumerate(corpus._read(), start=1):
        source, target = source.strip(), target.strip()
        if source and target:
            yield BatchPair(line, source, target)
