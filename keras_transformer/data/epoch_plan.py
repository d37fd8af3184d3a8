"""The order of an epoch: a function of seed and epoch number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.data.buckets import Bucket

# The indices of all pairs in the order of an epoch, and bucket, first and last pair of each batch.
EpochPlan = tuple[np.ndarray, list[tuple[Bucket, int, int]]]


def make_plan(by_bucket: np.ndarray, buckets: Sequence[Bucket], seed: int | None, epoch: int) -> EpochPlan:
    """Shuffles the pairs inside each bucket and then the batches, or neither.

    Args:
        by_bucket: int32 (N,), indices of all pairs, bucket by bucket.
        buckets: the shapes, in that order.
        seed: together with `epoch` the seed of the order; None: as they come.
        epoch: number of the epoch, from 0.

    Returns:
        The indices of all pairs in the order of the epoch, and bucket, first and last pair of each batch.
    """
    batches = []
    start = 0
    for bucket in buckets:
        end = start + bucket.pairs
        batches += [(bucket, first, min(first + bucket.rows, end)) for first in range(start, end, bucket.rows)]
        start = end
    if seed is None:
        return by_bucket, batches
    rng = np.random.default_rng((seed, epoch))
    pairs = by_bucket.copy()
    start = 0
    for bucket in buckets:
        rng.shuffle(pairs[start : start + bucket.pairs])
        start += bucket.pairs
    return pairs, [batches[index] for index in rng.permutation(len(batches))]
