"""The cache of a search in a plain TensorFlow graph, such as a server runs: written in place too."""

from typing import Any

import tensorflow as tf

from keras_transformer.models.hypotheses_cache import HypothesesCache

STEPS_AT_ONCE = 16  # that there is room for before places are swept out


class InPlaceCache(HypothesesCache):
    """A `HypothesesCache` whose memory is written to, where XLA does not compile the search.

    `tf.tensor_scatter_nd_update` copies the whole cache at every step of a loop. What reads the old cache must be done
    before a write: in a search it is, since the next token depends on all that it reads.

    There is room for a few steps. When it is used up, the places are swept: those in no live hypothesis' past go, and
    room for a few steps more comes. So attention reads little more than what hypotheses share and where they differ.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_places = STEPS_AT_ONCE * self.num_beams
        heads = tf.reshape(tf.range(self.batch * self.num_heads), [-1, 1, self.num_heads])  # (B, 1, N)
        self.heads = tf.reshape(heads + tf.zeros_like(self.hypotheses)[:, None], [-1])  # of the rows of an update
        self.places = tf.reshape(tf.zeros_like(heads) + self.hypotheses[:, None], [-1])  # the same, (B * K * N,)
        rows = tf.reshape(tf.range(self.batch * self.num_beams * self.num_heads), [-1, self.num_beams, self.num_heads])
        self.by_head = tf.reshape(tf.transpose(rows, [0, 2, 1]), [-1])  # (B, K, N) in the order (B, N, K)
        rows = tf.reshape(rows, [-1, self.num_heads, self.num_beams])
        self.by_hypothesis = tf.reshape(tf.transpose(rows, [0, 2, 1]), [-1])  # (B, N, K) in the order (B, K, N)

    def empty(self, size: int, dtype: str) -> tf.Tensor:
        """Memory of its own for every cache: equal zeros would be made one tensor by TensorFlow's optimizer."""
        shape = tf.stack([self.batch, self.num_heads, self.num_places, size])
        memory = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)
        return _of_any_size(memory, [None, self.num_heads, None, size])

    def no_past(self) -> tf.Tensor:
        """`(B, K, P)`, bool."""
        return _of_any_size(super().no_past(), [None, self.num_beams, None])

    def make_room(self, caches: Any, past: tf.Tensor, place: tf.Tensor) -> tuple[Any, tf.Tensor, tf.Tensor]:
        """Sweeps, where all places are written."""

        def sweep() -> tuple[Any, tf.Tensor, tf.Tensor]:
            used = tf.cast(tf.reduce_any(past, axis=1), tf.int32)  # (B, P)
            count = tf.reduce_max(tf.reduce_sum(used, axis=1))
            kept = tf.math.top_k(used, count).indices  # (B, count): the used ones first, in their order
            kept = tf.pad(kept, [[0, 0], [0, self.num_places]])  # the room is filled with what nobody looks at

            def swept(x: tf.Tensor) -> tf.Tensor:
                return tf.gather(x, kept, axis=2, batch_dims=1)

            return tf.nest.map_structure(swept, caches), swept(past) & (tf.range(tf.shape(kept)[1]) < count), count

        return tf.cond(place < tf.shape(past)[2], lambda: (caches, past, place), sweep)

    def write(self, cache: tf.Tensor, update: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """The cache with `update`, `(B * K, N * H)`, at K places from `place` on."""
        size, num_places = cache.shape[-1], tf.shape(cache)[2]
        update = tf.reshape(tf.cast(update, cache.dtype), [-1, size])  # (B * K * N, H)
        rows = self.heads * num_places + self.places + place
        written = tf.raw_ops.InplaceUpdate(x=tf.reshape(cache, [-1, size]), i=rows, v=update)
        return tf.reshape(written, [-1, self.num_heads, num_places, size])

    def products(self, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """`(B, N, K, H)` and `(B, N, S, H)` -> `(B, N, K, S)`.

        Of a few rows with many, TensorFlow's product takes twice as long as of the many with the few.
        """
        if self.num_beams == 1:
            return super().products(queries, keys)
        return tf.transpose(tf.matmul(keys, queries, transpose_b=True), [0, 1, 3, 2])

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


def _of_any_size(x: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    """x as a tensor that may have another size after a step of a loop, where `shape` says None."""
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)
