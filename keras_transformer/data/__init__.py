"""Parallel text to batches that `fit` and XLA like."""

from keras_transformer.data.batching import BatchingReport, EpochOrder, TokenBatches, make_dataset
from keras_transformer.data.corpus import DataError, ParallelCorpus

__all__ = ["BatchingReport", "DataError", "EpochOrder", "ParallelCorpus", "TokenBatches", "make_dataset"]
