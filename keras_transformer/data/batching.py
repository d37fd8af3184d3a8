"""Batches of token ids: length buckets of fixed shape, a token budget, exact epochs."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.data.batch_pairs import BatchPair, find_pairs
from keras_transformer.data.buckets import BatchingReport, make_buckets
from keras_transformer.data.corpus import DataError, ParallelCorpus
from keras_transformer.data.epoch_plan import EpochPlan, make_plan
from keras_transformer.data.token_store import TokenColumn, tokenize_pairs
from keras_transformer.progress import Progress
from keras_transformer.text.tokenizer import END_TOKEN_ID, PAD_TOKEN_ID, START_TOKEN_ID, Tokenizer

logger = logging.getLogger("keras_transformer")

PREFETCHED_BATCHES = 2

_TYPES = (tf.int32, tf.int32, tf.int32, tf.float32)


def make_dataset(
    corpus: ParallelCorpus,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    batch_tokens: int = 4096,
    max_length: int = 256,
    shuffle: bool = True,
    seed: int = 0,
    rows_multiple_of: int = 1,
    bucket_edges: Sequence[int] | None = None,
    cache_directory: str | os.PathLike[str] | None = None,
) -> TokenBatches:
    """Tokenizes a corpus and cuts it into batches for `fit`, `evaluate` and XLA.

    Pairs are sorted into buckets by their longer side. All batches of a bucket have one shape, so XLA compiles once per
    bucket; a bucket's last batch is filled up with rows of padding that weigh nothing. Every epoch shows every pair
    exactly once, in `len(dataset)` batches. Pairs with a side of more than `max_length` tokens (its end token included)
    are dropped, never cut, and reported in the log and in `dataset.report`.

    With `shuffle`, which pairs share a batch and the order of the batches are drawn anew for each epoch, see
    `TokenBatches`. Without, batches come bucket by bucket, pairs in the order of the corpus.

    Args:
        corpus: a `ParallelCorpus`.
        source_tokenizer: `Tokenizer` of the source side.
        target_tokenizer: `Tokenizer` of the target side; the source's (one shared vocabulary) if not given.
        batch_tokens: the budget: rows x longest side of a batch is at most this.
        max_length: largest number of tokens of a side, end token included.
        shuffle: draw a new order for each epoch.
        seed: seed of the order.
        rows_multiple_of: the rows of each batch are a multiple of this, the number of replicas for example.
        bucket_edges: ascending lengths of the buckets; `max_length` is added. Fewer edges: fewer compilations, more
            padding. If not given, at most 24 of the corpus' own lengths, those that save more padding than they cost.
        cache_directory: existing folder for the temporary files with the token ids (2 or 4 bytes per token and 16 per
            pair); the system's temporary folder if not given. They vanish with the dataset.

    Returns:
        A `TokenBatches`, a `tf.data.Dataset` of `({"encoder_token_ids", "decoder_token_ids"}, labels, sample_weight)`:
        source ids + end, int32 (R, S); start + target ids, int32 (R, T); target ids + end, int32 (R, T); and float32
        (R, T), 1 on labels, end token included, 0 on padding. S = T = the bucket's length.

    Raises:
        ValueError: an argument is wrong, or no pair is left (`DataError`).

    Example:

    >>> corpus = ParallelCorpus.from_pairs([("um gato", "a cat"), ("um cão", "a dog")] * 20)
    >>> tokenizer = Tokenizer.train([*corpus.sources(), *corpus.targets()], vocabulary_size=272)
    >>> dataset = make_dataset(corpus, tokenizer, batch_tokens=128, max_length=16)
    >>> for inputs, labels, sample_weight in dataset:
    ...     assert inputs["encoder_token_ids"].shape == labels.shape
    """
    _check_positive(batch_tokens=batch_tokens, max_length=max_length, rows_multiple_of=rows_multiple_of)
    _check_edges(bucket_edges)
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer, 0 or more. Received: seed={seed!r}")
    if cache_directory is not None and not os.path.isdir(cache_directory):
        raise ValueError(f"`cache_directory` must be a folder. Received: cache_directory={cache_directory!r}")
    if batch_tokens < max_length * rows_multiple_of:
        raise ValueError(
            f"`batch_tokens` must hold {rows_multiple_of} row(s) of max_length={max_length} tokens: raise it "
            f"to {max_length * rows_multiple_of} or lower max_length. Received: batch_tokens={batch_tokens}"
        )
    with Progress(f"tokenizing {corpus.name}", len(corpus), unit="pairs") as progress:
        source, target, dropped = tokenize_pairs(
            progress.over(corpus), source_tokenizer, target_tokenizer or source_tokenizer, max_length, cache_directory
        )
    if len(source) + len(dropped) != len(corpus):
        raise DataError(
            f"{corpus.name}: gave {len(corpus)} pairs when it was made and {len(source) + len(dropped)} now: leave its "
            "files as they are, and let its reader start anew each time."
        )
    if not len(source):
        raise DataError(
            f"{corpus.name}: all {len(dropped)} pairs are longer than max_length={max_length} tokens. Raise max_length."
        )
    longest = np.maximum(source.lengths(), target.lengths()) + 1
    buckets = make_buckets(longest, batch_tokens, max_length, rows_multiple_of, bucket_edges)
    bucket_of = np.searchsorted([bucket.length for bucket in buckets], longest).astype(np.int16)
    tokens = int(source.lengths().sum()) + int(target.lengths().sum()) + 2 * len(source)
    cells = 2 * sum(bucket.cells for bucket in buckets)
    report = BatchingReport(len(source), len(dropped), corpus.skipped, buckets, 1.0 - tokens / cells)
    logger.log(logging.WARNING if len(dropped) else logging.INFO, "%s: %s", corpus.name, report)
    by_bucket = np.argsort(bucket_of, kind="stable").astype(np.int32)
    find = functools.partial(find_pairs, corpus, dropped)
    return TokenBatches(source, target, by_bucket, report, seed if shuffle else None, find)


class TokenBatches(tf.data.Dataset):
    """The dataset that `make_dataset` returns.

    The order of an epoch is a function of (seed, epoch number). The number is the one last given to `set_epoch`, which
    holds for every later iteration of this dataset and of those derived from it (`skip`, `take`, `map`, ...).
    `EpochOrder` calls it at the start of each epoch of `fit`. How often a dataset is read is no such number: Keras
    makes two iterators an epoch and drops one, and under a strategy the dropped one reads ahead as well.

    As long as nobody calls `set_epoch`, the i-th iteration that reads a batch has the order of epoch i: on one device
    `model.fit(dataset, epochs=3)` alone sees epochs 0, 1, 2. Under a strategy, and to resume, use `EpochOrder`.

    Attributes:
        report: a `BatchingReport`.
    """

    def __init__(
        self,
        source: TokenColumn,
        target: TokenColumn,
        by_bucket: np.ndarray,
        report: BatchingReport,
        seed: int | None,
        find_pairs: Callable[[Sequence[int]], list[BatchPair]],
    ):
        self.report = report
        self._columns = (source, target)
        self._by_bucket = by_bucket
        self._seed = seed
        self._find_pairs = find_pairs
        self._epoch: int | None = None
        self._iterations = 0
        self._plans: dict[int, EpochPlan] = {}
        self._lock = threading.Lock()
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = False
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        start, batch = _weak(self._start), _weak(self._batch)
        # The epoch is asked for when an iteration starts, then each batch by (epoch, index).
        self._dataset = (
            tf.data.Dataset.from_tensors(0)
            .map(lambda _: tf.numpy_function(start, [], tf.int64))
            .flat_map(lambda epoch: tf.data.Dataset.range(report.batches).map(lambda index: (epoch, index)))
            .map(lambda epoch, index: _structure(*tf.numpy_function(batch, [epoch, index], _TYPES)))
            .apply(tf.data.experimental.assert_cardinality(report.batches))
            .prefetch(PREFETCHED_BATCHES)
            .with_options(options)
        )
        super().__init__(self._dataset._variant_tensor)

    def set_epoch(self, epoch: int) -> None:
        """Fixes the order of all later iterations to that of `epoch`.

        Args:
            epoch: number of the epoch, from 0.
        """
        if epoch < 0:
            raise ValueError(f"`epoch` must be 0 or more. Received: epoch={epoch}")
        self._epoch = int(epoch)

    @property
    def order(self) -> str:
        """A hash of all that decides which pairs a batch holds: seed, shapes, number and lengths of the pairs."""
        description = repr((self._seed, self.report.buckets)).encode()
        return hashlib.sha256(description + self._by_bucket.tobytes()).hexdigest()

    @property
    def epoch(self) -> int:
        """Number of the epoch whose order the iteration begun last has, from 0."""
        return max(self._iterations - 1, 0) if self._epoch is None else self._epoch

    def batch_pairs(self, epoch: int, index: int) -> list[BatchPair]:
        """The pairs of a batch as they stand in the corpus, which is read anew up to the last of them.

        Args:
            epoch: number of the epoch, from 0.
            index: number of the batch in its epoch, from 0.

        Returns:
            (line of the corpus from 1, source, target) of each real row, in the batch's order.
        """
        pairs, batches = self._plan(epoch)
        if not 0 <= index < len(batches):
            raise ValueError(f"`index` must be 0 or more and below {len(batches)}. Received: index={index}")
        _, first, last = batches[index]
        return self._find_pairs(pairs[first:last].tolist())

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    def _start(self) -> np.int64:
        epoch = self._iterations if self._epoch is None else self._epoch
        self._iterations += 1
        return np.int64(epoch)

    def _plan(self, epoch: int) -> EpochPlan:
        """The order of an epoch; those of the last two are kept, since a dropped iterator may still read ahead."""
        with self._lock:
            if epoch not in self._plans:
                self._plans = dict([*self._plans.items()][-1:])
                self._plans[epoch] = make_plan(self._by_bucket, self.report.buckets, self._seed, epoch)
            return self._plans[epoch]

    def _batch(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        pairs, batches = self._plan(int(epoch))
        bucket, first, last = batches[index]
        rows = pairs[first:last]
        source, target = self._columns
        shape = (bucket.rows, bucket.length)
        real_rows = np.arange(len(rows))
        encoder, source_lengths = source.padded(rows, shape)
        encoder[real_rows, source_lengths[: len(rows)]] = END_TOKEN_ID
        decoder, target_lengths = target.padded(rows, shape, before=1)
        decoder[: len(rows), 0] = START_TOKEN_ID
        labels = np.zeros(shape, np.int32)
        labels[:, :-1] = decoder[:, 1:]
        labels[real_rows, target_lengths[: len(rows)]] = END_TOKEN_ID
        return encoder, decoder, labels, (labels != PAD_TOKEN_ID).astype(np.float32)


class EpochOrder(keras.callbacks.Callback):
    """Tells a dataset the number of each epoch of `fit`, so that its order depends on seed and number alone.

    Args:
        dataset: the `TokenBatches` that `fit` trains on, or that what it trains on is derived from.

    Example:

    >>> def resume(model, dataset):
    ...     model.fit(dataset, epochs=10, initial_epoch=4, shuffle=False, callbacks=[EpochOrder(dataset)])
    """

    def __init__(self, dataset: TokenBatches):
        super().__init__()
        self._dataset = dataset

    @property
    def order(self) -> str:
        """The dataset's."""
        return self._dataset.order

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._dataset.set_epoch(epoch)


def _weak(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method without its object: TensorFlow never lets go of a Python function that a dataset has called."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        bound = reference()
        if bound is None:
            raise RuntimeError("The dataset of this iterator is gone: keep the object that make_dataset returned.")
        return bound(*arguments)

    return call


def _structure(*tensors: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
    for tensor in tensors:
        tensor.set_shape((None, None))
    encoder, decoder, labels, sample_weight = tensors
    return {"encoder_token_ids": encoder, "decoder_token_ids": decoder}, labels, sample_weight


def _check_edges(edges: Sequence[int] | None) -> None:
    if edges is not None and (not edges or list(edges) != sorted(set(edges)) or edges[0] < 1):
        raise ValueError(f"`bucket_edges` must hold ascending integers above 0. Received: bucket_edges={edges}")


def _check_positive(**arguments: int) -> None:
    for name, value in arguments.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an integer above 0. Received: {name}={value!r}")
