"""The cache of a search in a plain TensorFlow graph, such as a server runs: written in place too."""

from typing import Any

import tensorflow as tf

from keras_transformer.models.hypotheses_cache import HypothesesCache


class InPlaceCache(HypothesesCache):
    """A `HypothesesCache` whose memory is written to, where XLA does not compile the search.

    `tf.tensor_scatter_nd_update` copies the whole cache at every step of a loop. What reads the old cache must be done
    before a write: in a search it is, since the next token depends on all that it reads.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first = tf.range(self.batch * self.num_heads) * (self.max_length * self.num_beams)
        first = tf.reshape(first, [-1, 1, self.num_heads]) + self.hypotheses[:, None]  # (B, K, N)
        self.first_rows = tf.reshape(first, [-1])  # of position 0, in the order of an update

    def empty(self, size: int, dtype: str) -> tf.Tensor:
        """Memory of its own for every cache: equal zeros would be made one tensor by TensorFlow's optimizer."""
        shape = tf.stack([self.batch, self.num_heads, self.max_length * self.num_beams, size])
        return tf.ensure_shape(
            tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True), [None, self.num_heads, None, size]
        )

    def write(self, cache: tf.Tensor, update: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """The cache with `update`, `(B * K, N * H)`, at position `index`."""
        size = cache.shape[-1]
        update = tf.reshape(tf.cast(update, cache.dtype), [-1, size])  # (B * K * N, H)
        rows = self.first_rows + index * self.num_beams
        written = tf.raw_ops.InplaceUpdate(x=tf.reshape(cache, [-1, size]), i=rows, v=update)
        return tf.reshape(written, [-1, self.num_heads, self.max_length * self.num_beams, size])
