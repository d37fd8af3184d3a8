"""Keys and values of all hypotheses of a beam: written once, in place, and never moved to follow a hypothesis.

In every step each of a source's K hypotheses writes into a place of its own. When the search lets a hypothesis go on
from another one, what that one has written stays where it is, and `past` says of each hypothesis which places hold its
own positions: attention looks at all places of the source, under that mask. So a step writes K places a source and
copies nothing.
"""

from typing import Any

from keras import ops

Tensor = Any


class HypothesesCache:
    """How caches of shape `(B, N, P, H)` are written and read, P the number of places.

    There are places for all steps from the beginning, and a slice is written, which XLA compiles to a write in place.
    A plain TensorFlow graph has no such operation: `serving/in_place.py` writes there.

    Args:
        batch: B, an integer or a scalar tensor.
        num_heads: N.
        num_beams: K.
        max_length: The greatest number of steps, an integer or a scalar tensor.
    """

    def __init__(self, batch: int | Tensor, num_heads: int, num_beams: int, max_length: int | Tensor) -> None:
        self.batch, self.num_heads, self.num_beams = batch, num_heads, num_beams
        self.num_places = max_length * num_beams
        self.hypotheses = ops.arange(num_beams, dtype="int32")  # (K,)

    def empty(self, size: int, dtype: str) -> Tensor:
        """`(B, N, P, H)`, before the first token."""
        return ops.zeros((self.batch, self.num_heads, self.num_places, size), dtype=dtype)

    def no_past(self) -> Tensor:
        """`(B, K, P)`, bool: whether a place holds one of a hypothesis' positions."""
        return ops.zeros((self.batch, self.num_beams, self.num_places), dtype="bool")

    def make_room(self, caches: Any, past: Tensor, place: Tensor) -> tuple[Any, Tensor, Tensor]:
        """All caches, in any structure, the past, and the first of K places to write to: here there is always room."""
        return caches, past, place

    def write(self, cache: Tensor, update: Tensor, place: Tensor) -> Tensor:
        """The cache with `update`, `(B * K, N * H)`, at K places from `place` on."""
        update = ops.cast(self.split_heads(update, cache.shape[-1]), cache.dtype)
        return ops.slice_update(cache, (0, 0, place, 0), update)

    def own(self, past: Tensor, place: Tensor) -> Tensor:
        """Each hypothesis has one of the K places from `place` on."""
        places = ops.arange(ops.shape(past)[2], dtype="int32")
        return ops.logical_or(past, ops.equal(places, ops.expand_dims(place + self.hypotheses, 1)))  # (K, P)

    def reorder(self, past: Tensor, parents: Tensor) -> Tensor:
        """The past of hypotheses that go on from `parents`, `(B * K,)`: indices of rows of all hypotheses."""
        num_places = ops.shape(past)[2]
        taken = ops.take(ops.reshape(past, (-1, num_places)), parents, axis=0)
        return ops.reshape(taken, (-1, self.num_beams, num_places))

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
