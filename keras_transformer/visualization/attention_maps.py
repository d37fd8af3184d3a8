"""Attention as a picture: who looked where, how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

KINDS = ("encoder", "decoder", "cross")
_WIDEST = 16  # inches of heads side by side; more of them go below
_FALLBACK_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Hiragino Sans",
    "Arial Unicode MS",
    "Microsoft YaHei",
    "WenQuanYi Zen Hei",
    "Noto Sans Devanagari",
    "Noto Emoji",
)


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


def plot_attention(
    attention: AttentionMaps, kind: str = "cross", layer: int = -1, heads: Sequence[int] | None = None
) -> Any:
    """Draws the heads of one layer: a row for each piece that looks, a column for each one looked at.

    The pieces are the tokenizer's, "▁" where a word begins; a character that no font has becomes a box.

    Args:
        attention: From `Translator.attention`.
        kind: "encoder", "decoder" (masked self-attention) or "cross".
        layer: Which layer; -1 is the last.
        heads: Which heads; all if not given.

    Returns:
        A `matplotlib.figure.Figure`: show it in a notebook, or `figure.savefig("attention.png")`.

    Raises:
        ValueError: If there is no such kind, layer or head.

    Reference:
        Vaswani et al. (2017), figures 3 to 5.
    """
    from matplotlib.figure import Figure

    rows, columns = attention.labels(kind)
    weights = getattr(attention, kind)
    num_layers, num_heads = weights.shape[:2]
    heads = list(range(num_heads)) if heads is None else list(heads)
    if not -num_layers <= layer < num_layers:
        raise ValueError(f"`layer` must be below {num_layers}. Received: layer={layer}")
    if not heads or not all(0 <= head < num_heads for head in heads):
        raise ValueError(f"`heads` must be among 0 to {num_heads - 1}. Received: heads={heads}")

    labels = _Labels([*rows, *columns])
    cell = min(0.26, max(0.13, 6 / max(len(rows), len(columns))))  # inches a piece; long sentences get small type
    text = {"fontsize": 34 * cell, "family": labels.families, "parse_math": False}
    room = 0.35 * cell * max(len(piece) for piece in columns)  # for the pieces below
    width, height = cell * len(columns) + 0.3, cell * len(rows) + room + 0.5
    side_by_side = min(len(heads), max(1, int(_WIDEST / width)))
    num_rows = -(-len(heads) // side_by_side)
    figure = Figure(figsize=(side_by_side * width + 1.8, num_rows * height + 0.5), layout="constrained")
    grid = figure.subplots(num_rows, side_by_side, sharey=True, squeeze=False)
    for axis in grid.flat[len(heads) :]:
        axis.remove()
    axes = list(grid.flat[: len(heads)])
    for axis, head in zip(axes, heads, strict=True):
        image = axis.imshow(weights[layer, head], vmin=0, vmax=1, cmap="Blues", aspect="equal")
        axis.set_title(f"head {head + 1}", fontsize=10)
        axis.set_xticks(range(len(columns)), labels.drawable(columns), rotation=90, **text)
        axis.set_yticks(range(len(rows)), labels.drawable(rows), **text)
        axis.tick_params(length=0)
        axis.set_xticks(np.arange(-0.5, len(columns)), minor=True)
        axis.set_yticks(np.arange(-0.5, len(rows)), minor=True)
        axis.grid(which="minor", color="0.9", linewidth=0.5)
        axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axes, shrink=0.7 / num_rows, aspect=15, label="weight")
    title = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}[kind]
    figure.suptitle(f"{title}, layer {layer % num_layers + 1} of {num_layers}", fontsize=11)
    return figure


class _Labels:
    """Fonts for some pieces: Matplotlib's own, and, where it lacks a character, what the machine has."""

    def __init__(self, pieces: Sequence[str]) -> None:
        from matplotlib import font_manager

        self.families = ["DejaVu Sans"]
        self._known = _characters(font_manager.findfont("DejaVu Sans"))
        for font in font_manager.fontManager.ttflist if set("".join(pieces)) - self._known else ():
            if font.name in _FALLBACK_FONTS and font.name not in self.families:
                self.families.append(font.name)
                self._known |= _characters(font.fname)

    def drawable(self, pieces: Sequence[str]) -> list[str]:
        """The pieces, with a box for each character that no font has."""
        return ["".join(character if character in self._known else "□" for character in piece) for piece in pieces]


def _characters(path: str) -> set[str]:
    from matplotlib import font_manager

    return {chr(code) for code in font_manager.get_font(path).get_charmap()}
