"""Who looked where, how much: the weights of one sentence pair, with the pieces that they belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KINDS = ("encoder", "decoder", "cross")


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

    def to_html(self, title: str | None = None) -> str:
        """One page to keep or to send, with every head of every layer in it: see `attention_page`."""
        from keras_transformer.visualization.attention_explorer import attention_page

        return attention_page(self, title)

    def _repr_html_(self) -> str:
        """The same page in a notebook, in a frame of its own."""
        from keras_transformer.visualization.attention_explorer import attention_frame

        return attention_frame(self)
