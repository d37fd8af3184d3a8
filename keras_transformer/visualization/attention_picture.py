"""Attention and masks as heat maps: a row for each piece that looks, a column for each one looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from keras_transformer.visualization.attention_maps import KINDS, AttentionMaps, chosen_heads, integers
from keras_transformer.visualization.fonts import Fonts
from keras_transformer.visualization.picture import Picture

_WIDEST = 16.0  # inches of panels side by side
_LARGEST_CELL, _SMALLEST_CELL = 0.26, 0.13  # inches a piece, where its label can be read
_AXES = {  # of the rows and of the columns
    "encoder": ("query: source", "key: source"),
    "decoder": ("query: target", "key: decoder input"),
    "cross": ("query: target", "key: source"),
}


def plot_attention(
    attention: AttentionMaps,
    kind: str = "cross",
    layer: int | None = -1,
    heads: int | Sequence[int] | None = None,
) -> Picture:
    """Draws one head, the heads of a layer, or those of all layers.

    The pieces are the tokenizer's, "▁" where a word begins. A character that no font has becomes a box, and the picture
    says so. With `layer=None` there is a row of panels for each layer; where that makes the panels too small for the
    pieces to be read, the picture says how many there are.

    Args:
        attention: From `Translator.attention`.
        kind: "encoder", "decoder" (masked self-attention) or "cross".
        layer: Which layer; -1 is the last, `None` all of them.
        heads: Which heads, one or several; all if not given.

    Returns:
        A `matplotlib.figure.Figure`: a notebook shows it, or `figure.savefig("attention.png")`.

    Raises:
        ValueError: If there is no such kind, layer or head, or weights and pieces do not fit together.
        TypeError: If a layer or head is no integer.

    Reference:
        Vaswani et al. (2017), figures 3 to 5.
    """
    rows, columns = attention.labels(kind)
    weights = attention.checked_weights(kind)
    num_layers, num_heads = weights.shape[:2]
    heads = chosen_heads(heads, num_heads)
    layers = _chosen_layers(layer, num_layers)

    per_row = _side_by_side(len(heads), len(rows), len(columns)) if len(layers) == 1 else len(heads)
    cell = _cell(rows, columns, per_row)
    panels = [(weights[layer, head], _panel_title(layer, head, layers)) for layer in layers for head in heads]
    title = f"{KINDS[kind]}, " + (
        f"layer {layers[0] + 1} of {num_layers}" if len(layers) == 1 else f"all {num_layers} layers"
    )
    return _heat_maps(panels, rows, columns, _AXES[kind], title, cell, per_row)


def plot_mask(
    mask: Any,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    title: str = "",
) -> Picture:
    """Draws who may be attended to, or how much: a row for each query, a column for each key.

    Args:
        mask: `(T, S)` or `(1, T, S)`; bool, `True` = may be attended to, or weights from 0 to 1.
        query_labels, key_labels: T and S pieces; positions from 0 if not given.
        title: A line above.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the shape is another, the labels are not as many, or a weight is not from 0 to 1.

    Example:
        >>> picture = plot_mask(np.tril(np.ones((5, 5), bool)), title="look-ahead mask")
    """
    weights = np.asarray(mask).astype("float32")
    if weights.ndim == 3 and weights.shape[0] == 1:
        weights = weights[0]
    if weights.ndim != 2 or 0 in weights.shape:
        raise ValueError(f"`mask` must be (T, S) or (1, T, S). Received: shape={np.shape(mask)}")
    if not ((weights >= -1e-3) & (weights <= 1.001)).all():  # NaN too; rounding may pass 0 and 1 by a little
        raise ValueError(
            "`mask` must be boolean, or weights from 0 to 1, after the softmax. "
            f"Received: values from {weights.min():g} to {weights.max():g}"
        )
    rows = _labels_of("query_labels", query_labels, weights.shape[0])
    columns = _labels_of("key_labels", key_labels, weights.shape[1])
    bar = np.asarray(mask).dtype != bool
    return _heat_maps([(weights, "")], rows, columns, ("query", "key"), title, _cell(rows, columns, 1), 1, bar=bar)


def _labels_of(name: str, labels: Sequence[str] | None, size: int) -> list[str]:
    chosen = list(map(str, range(size) if labels is None else labels))
    if len(chosen) != size:
        raise ValueError(f"`{name}` must be {size}, one for each. Received: {len(chosen)}")
    return chosen


def _chosen_layers(layer: int | None, num_layers: int) -> list[int]:
    if layer is None:
        return list(range(num_layers))
    chosen = integers("layer", layer)
    if len(chosen) != 1 or not -num_layers <= chosen[0] < num_layers:
        raise ValueError(f"`layer` must be one layer, below {num_layers}. Received: layer={layer}")
    return [chosen[0] % num_layers]


def _panel_title(layer: int, head: int, layers: list[int]) -> str:
    return f"head {head + 1}" if len(layers) == 1 else f"layer {layer + 1}, head {head + 1}"


def _side_by_side(panels: int, rows: int, columns: int) -> int:
    """How many panels fit beside each other with labels that can be read; the others go below."""
    width = _largest_cell(rows, columns) * columns + 0.3
    return min(panels, max(1, int(_WIDEST / width)))


def _largest_cell(rows: int, columns: int) -> float:
    return min(_LARGEST_CELL, max(_SMALLEST_CELL, 6 / max(rows, columns)))  # long sentences get small type


def _cell(rows: Sequence[str], columns: Sequence[str], per_row: int) -> float:
    """Inches a piece."""
    return min(_largest_cell(len(rows), len(columns)), max(0.02, (_WIDEST / per_row - 0.3) / len(columns)))


def _heat_maps(
    panels: Sequence[tuple[np.ndarray, str]],
    rows: Sequence[str],
    columns: Sequence[str],
    axis_names: tuple[str, str],
    title: str,
    cell: float,
    per_row: int,
    bar: bool = True,
) -> Picture:
    fonts = Fonts([*rows, *columns])
    readable = cell > 0.08
    left, room = (
        0.35 * cell * max(len(fonts.drawable(piece)) for piece in pieces) if readable else 0.0
        for pieces in (rows, columns)
    )
    num_rows = -(-len(panels) // per_row)
    full = len(panels) == num_rows * per_row  # then pieces below the last row are enough
    rooms = (0.2 + room) * (1 if full else num_rows)
    panel = max(cell * len(columns), 0.075 * max(len(name) for _, name in panels)) + 0.3  # room for its name
    figure = Picture(per_row * panel + max(1.8, left + 1.1), num_rows * (cell * len(rows) + 0.5) + rooms + 0.5)
    grid = figure.subplots(num_rows, per_row, sharex=full, sharey=True, squeeze=False)
    for axis in grid.flat[len(panels) :]:
        axis.remove()
    axes = list(grid.flat[: len(panels)])
    for number, (axis, (weights, name)) in enumerate(zip(axes, panels, strict=True)):
        image = axis.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="equal", interpolation="nearest")
        axis.set_title(name, fontsize=10, parse_math=False)
        _label(axis, rows, columns, fonts, 34 * cell if readable else None)
        if number % per_row == 0:
            axis.set_ylabel(axis_names[0], fontsize=9)
        if not full or number >= len(panels) - per_row:
            axis.set_xlabel(axis_names[1], fontsize=9)
    if bar:
        figure.colorbar(image, ax=axes, shrink=0.7 / num_rows, aspect=15, label="weight")
    figure.suptitle(title, fontsize=11, parse_math=False)
    notes = [fonts.note()]
    if not readable:
        notes.append(f"{len(rows)} pieces look at {len(columns)}: too small to be named here; draw one layer or head")
    if any(notes):
        width = int(14 * figure.get_figwidth())  # characters of this size
        lines = [line for note in notes for line in textwrap.wrap(note, width)]
        figure.supxlabel("\n".join(lines), fontsize=8, color="0.35")
    return figure


def _label(axis: Axes, rows: Sequence[str], columns: Sequence[str], fonts: Fonts, size: float | None) -> None:
    """Pieces along both sides, and thin lines between the cells; neither where there is no room."""
    if size is None:
        axis.set_xticks([])
        axis.set_yticks([])
        return
    text: dict[str, Any] = {"fontsize": size, "family": fonts.families, "parse_math": False}
    axis.set_xticks(range(len(columns)), [fonts.drawable(piece) for piece in columns], rotation=90, **text)
    axis.set_yticks(range(len(rows)), [fonts.drawable(piece) for piece in rows], **text)
    axis.set_xticks(np.arange(-0.5, len(columns)), minor=True)
    axis.set_yticks(np.arange(-0.5, len(rows)), minor=True)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="both", length=0)
