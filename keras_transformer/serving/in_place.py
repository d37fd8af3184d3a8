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
        rows = tf.reshape(tf.range(self.batch * self.num_beams * self.num_heads), [-1, self.num_beams, self.num_heads])
        self.by_head = tf.reshape(tf.transpose(rows, [0, 2, 1]), [-1])  # (B, K, N) in the order (B, N, K)
        rows = tf.reshape(rows, [-1, self.num_heads, self.num_beams])
        self.by_hypothesis = tf.reshape(tf.transpose(rows, [0, 2, 1]), [-1])  # (B, N, K) in the order (B, K, N)

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

    def split_heads(self, rows: tf.Tensor, size: int) -> tf.Tensor:
        """`(B * K, N * H)` -> `(B, N, K, H)`. Rows are gathered: oneDNN's transpose takes several times as long."""
        heads = tf.reshape(rows, [-1, size])
        if self.num_beams > 1:
            heads = tf.gather(heads, self.by_head)
        return tf.reshape(heads, [-1, self.num_heads, self.num_beams, size])

    def merge_heads(self, heads: tf.Tensor) -> tf.Tensor:
        """`(B, N, K, H)` -> `(B * K, N * H)`."""
        rows = tf.reshape(heads, [-1, heads.shape[-1]])
        if self.num_beams > 1:
            rows = tf.gather(rows, self.by_hypothesis)
        return tf.reshape(rows, [-1, self.num_heads * heads.shape[-1]])
