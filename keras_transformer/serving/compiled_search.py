"""The search compiled by XLA: shapes rounded up to a few, since each is compiled anew."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

logger = logging.getLogger("keras_transformer")


class CompiledSearch:
    """`search(ids)` of any shape `(P, S)`, run at the next larger of a few shapes.

    Rows are filled up with empty sentences, which end at once, to a power of 2; lengths with padding.

    Args:
        search: `(P, S)` source ids -> target ids `(P, n, L)` and scores `(P, n)`, by TensorFlow operations that XLA
            compiles; what a row gets depends on that row alone.
        empty_row: The ids of an empty sentence.
    """

    def __init__(self, search: Callable[..., Any], empty_row: tuple[int, ...]) -> None:
        self.search = tf.function(search, jit_compile=True, autograph=False)
        self.empty_row, self.shapes, self._lock = empty_row, set[tuple](), threading.Lock()

    def __call__(self, ids: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows, length = ids.shape
        shape = (1 << max(rows - 1, 0).bit_length(), next((x for x in _LENGTHS if x >= length), length))
        began, number = time.monotonic(), self._number_of_new((shape, *(tuple(x.shape) for x in others)))
        filled = tf.pad(ids, [[0, 0], [0, shape[1] - length]])
        if shape[0] > rows:
            empty = tf.constant([[*self.empty_row, *[0] * (shape[1] - len(self.empty_row))]], tf.int32)
            filled = tf.concat([filled, tf.repeat(empty, shape[0] - rows, axis=0)], axis=0)
            # Of every row, or one number for all.
            others = tuple(tf.pad(x, [[0, shape[0] - rows], [0, 0]]) if len(x.shape) else x for x in others)
        target_ids, scores = self.search(filled, *others)
        if number:
            logger.info(
                "XLA compiled the search for %d sentences of %d tokens in %.1f s: shape %d",
                *shape,
                time.monotonic() - began,
                number,
            )
        return target_ids[:rows], scores[:rows]

    def _number_of_new(self, shapes: tuple) -> int:
        """How many there are with these; 0 if they are known. Batches come from several threads."""
        with self._lock:
            known = shapes in self.shapes
            self.shapes.add(shapes)
            return 0 if known else len(self.shapes)
