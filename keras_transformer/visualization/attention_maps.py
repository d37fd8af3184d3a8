"""Who looked where, how much: the weights of one sentence pair, with the pieces that they belong to."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

KINDS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
_TOLERANCE = 1e-3  # of weights that were rounded


class AttentionMaps(NamedTuple):
    """The weights of one sentence pair: every kind's are `(layers, heads, queries, keys)`, float32.

    `encoder`: source pieces look at source pieces. `decoder`: the row that writes target piece t looks at the decoder's
    inputs, the start token and the target pieces before t. `cross`: that row looks at the source pieces.
    """

    source_pieces: list[str]
    decoder_input_pieces: list[str]
    target_pieces: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray

    def labels(self, kind: str) -> tuple[list[str], list[str]]:
        """The pieces along the rows and along the columns of a kind's weights."""
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}. Received: kind={kind!r}")
        return {
            "encoder": (self.source_pieces, self.source_pieces),
            "decoder": (self.target_pieces, self.decoder_input_pieces),
            "cross": (self.target_pieces, self.source_pieces),
        }[kind]

    def checked_weights(self, kind: str) -> np.ndarray:
        """A kind's weights, `(layers, heads, queries, keys)`, float64.

        Raises:
            ValueError: If they do not fit the pieces, or one is not a number from 0 to 1.
        """
        queries, keys = self.labels(kind)
        weights = np.asarray(getattr(self, kind), "float64")
        if weights.ndim != 4 or weights.shape[2:] != (len(queries), len(keys)) or not weights.size:
            raise ValueError(
                f"`attention.{kind}` must be (layers, heads, {len(queries)}, {len(keys)}), one row and one column a "
                f"piece, and at least one of each. Received: shape={weights.shape}"
            )
        wrong = ~((weights > -_TOLERANCE) & (weights < 1 + _TOLERANCE))  # NaN too
        if wrong.any():
            layer, head, query, key = np.argwhere(wrong)[0].tolist()
            raise ValueError(
                f"`attention.{kind}` must be weights from 0 to 1. "
                f"Received: {weights[layer, head, query, key]} in [{layer}, {head}, {query}, {key}]"
            )
        return weights

    def __repr__(self) -> str:
        layers, heads = self.cross.shape[:2]
        pieces = f"{len(self.source_pieces)} source pieces, {len(self.target_pieces)} target pieces"
        return f"AttentionMaps({pieces}, {layers} layers of {heads} heads)"

    def to_html(self, title: str | None = None) -> str:
        """One page to keep or to send, with every head of every layer in it: see `attention_page`."""
        from keras_transformer.visualization.attention_explorer import attention_page

        return attention_page(self, title)

    def _repr_html_(self) -> str:
        """The same page in a notebook, in a frame of its own."""
        from keras_transformer.visualization.attention_explorer import attention_frame

        return attention_frame(self)


def chosen_heads(heads: int | Sequence[int] | None, num_heads: int, most: int | None = None) -> list[int]:
    """One or several heads as a list; all if not given, or the first so many as there is room for.

    Raises:
        ValueError: If there is no such head, or there are too many.
        TypeError: If one is no integer.
    """
    most = num_heads if most is None else most
    chosen = list(range(min(num_heads, most))) if heads is None else integers("heads", heads)
    if not 1 <= len(chosen) <= most or not all(0 <= head < num_heads for head in chosen):
        raise ValueError(f"`heads` must be 1 to {most} of the heads 0 to {num_heads - 1}. Received: heads={heads!r}")
    return chosen


def integers(name: str, value: Any) -> list[int]:
    """One integer or several as a list; raises `TypeError` for what is something else."""
    values = np.ravel(value).tolist() if isinstance(value, np.ndarray) else value
    values = list(values) if isinstance(values, Sequence) else [values]
    if isinstance(value, str) or not all(isinstance(x, numbers.Integral) and not isinstance(x, bool) for x in values):
        raise TypeError(f"`{name}` must be one integer or several. Received: {name}={value!r}")
    return [int(each) for each in values]
