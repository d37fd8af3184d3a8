"""Keys and values of all hypotheses of a beam: written once, in place; they do not follow a hypothesis.

At each position the K hypotheses of a source have K places, one each. When the search lets a hypothesis go on from
another one, its earlier keys and values stay in that one's places, and `owners` says in whose: attention looks at all
L * K places of the source, under a mask. So a step writes K places a source and copies nothing.
"""

from typing import Any

from keras import ops

Tensor = Any


class HypothesesCache:
    """How caches of shape `(B, N, L * K, H)` are written and read: place `position * K + hypothesis`.

    A slice is written, which XLA compiles to a write in place. A plain TensorFlow graph has no such operation:
    `serving/in_place.py` writes there.

    Args:
        batch: B, an integer or a scalar tensor.
        num_heads: N.
        num_beams: K.
        max_length: L, an integer or a scalar tensor.
    """

    def __init__(self, batch: int | Tensor, num_heads: int, num_beams: int, max_length: int | Tensor) -> None:
        self.batch, self.num_heads, self.num_beams, self.max_length = batch, num_heads, num_beams, max_length
        self.hypotheses = ops.arange(num_beams, dtype="int32")  # (K,)

    def make_room(self, caches: Any, owners: Tensor, index: Tensor) -> tuple[Any, Tensor]:
        """All caches, in any structure, and the owners, with room for position `index`: here they always have it."""
        return caches, owners

    def empty(self, size: int, dtype: str) -> Tensor:
        """`(B, N, L * K, H)`, before the first token."""
        return ops.zeros((self.batch, self.num_heads, self.max_length * self.num_beams, size), dtype=dtype)

    def write(self, cache: Tensor, update: Tensor, index: Tensor) -> Tensor:
        """The cache with `update`, `(B * K, N * H)`, at position `index`."""
        update = ops.cast(self.split_heads(update, cache.shape[-1]), cache.dtype)
        return ops.slice_update(cache, (0, 0, index * self.num_beams, 0), update)

    def products(self, queries: Tensor, keys: Tensor) -> Tensor:
        """`(B, N, K, H)` and `(B, N, S, H)` -> `(B, N, K, S)`."""
        return ops.matmul(queries, ops.swapaxes(keys, -1, -2))

    def split_heads(self, rows: Tensor, size: int) -> Tensor:
        """`(B * K, N * H)` -> `(B, N, K, H)`: the hypotheses of a source are the queries of one attention."""
        if self.num_beams == 1:
            return ops.reshape(rows, (-1, self.num_heads, 1, size))
        return ops.swapaxes(ops.reshape(rows, (-1, self.num_beams, self.num_heads, size)), 1, 2)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """`(B, N, K, H)` -> `(B * K, N * H)`."""
        if self.num_beams > 1:
            heads = ops.swapaxes(heads, 1, 2)
        return ops.reshape(heads, (-1, self.num_heads * heads.shape[-1]))

    def no_owners(self) -> Tensor:
        """`(B, K, L)`, int32: in whose place each position of a hypothesis stands; -1 where none has been written."""
        return ops.full((self.batch, self.num_beams, self.max_length), -1, dtype="int32")

    def own(self, owners: Tensor, index: Tensor) -> Tensor:
        """Each hypothesis writes position `index` into its own place."""
        here = ops.equal(ops.arange(ops.shape(owners)[2], dtype="int32"), index)  # (L,)
        return ops.where(here, ops.expand_dims(self.hypotheses, 1), owners)

    def visible(self, owners: Tensor) -> Tensor:
        """`(B, 1, K, L * K)`, bool: a hypothesis sees the places that hold its own positions, and no others."""
        seen = ops.equal(ops.expand_dims(owners, 3), self.hypotheses)  # (B, K, L, 1) against (K,) -> (B, K, L, K)
        return ops.reshape(seen, (-1, 1, self.num_beams, ops.shape(owners)[2] * self.num_beams))

    def reorder(self, owners: Tensor, parents: Tensor) -> Tensor:
        """Owners of the hypotheses that go on from `parents`, `(B * K,)`: indices of rows of all hypotheses."""
        length = ops.shape(owners)[2]
        taken = ops.take(ops.reshape(owners, (-1, length)), parents, axis=0)
        return ops.reshape(taken, (-1, self.num_beams, length))
