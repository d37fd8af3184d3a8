"""Attention as pixels for TensorBoard: drawn in milliseconds while a training waits, and bounded in size."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.visualization.attention_maps import KINDS, AttentionMaps
from keras_transformer.visualization.fonts import Fonts

MAX_PIECES = 40  # rows and columns of a head
MAX_HEADS = 16
# TensorBoard's page of images shows all of them 350 pixels wide, without smoothing: at another width small type is
# lost.
_CARD = 350
_CELLS = (18, 16, 14, 13, 12, 11)  # pixels a piece, the largest that fits
_LONGEST_LABEL, _WIDEST_LABEL = 14, 180  # characters, and pixels, which some characters take ten times as many of
_NARROWEST_PANEL = 56  # room for "head 16"
_LINE = 18  # pixels from line to line of the words above
_GAP = 8
_GRID = 225  # the grey between the cells


class _Layout(NamedTuple):
    """Where things are, in pixels."""

    cell: int
    across: int  # heads beside each other
    row_labels: list[np.ndarray]
    column_labels: list[np.ndarray]
    left: int  # the width of the row labels
    below: int  # the height of the column labels
    panel_width: int

    def height(self, num_heads: int) -> int:
        return -(-num_heads // self.across) * self.panel_height

    @property
    def panel_height(self) -> int:
        return _LINE + self.cell * len(self.row_labels) + self.below


def attention_image(attention: AttentionMaps, kind: str, layer: int, heads: Sequence[int]) -> np.ndarray:
    """What `plot_attention` shows of a layer, without Matplotlib's layout, which takes a second for each picture.

    It is as wide as TensorBoard's card, with as many heads beside each other as can be read there. With more than some
    25 pieces it is wider, and TensorBoard shows it at its own size on a click. Of a longer sentence the first
    `MAX_PIECES` pieces are shown, and the picture says so.

    Args:
        attention: The weights and their pieces.
        kind: "encoder", "decoder" or "cross".
        layer: Which layer, from 0.
        heads: Which heads, from 0; at most `MAX_HEADS`.

    Returns:
        Pixels, `(height, width, 3)`, uint8; at most 6 million pixels.
    """
    all_rows, all_columns = attention.labels(kind)
    rows, columns = (pieces[:MAX_PIECES] for pieces in (all_rows, all_columns))
    weights = getattr(attention, kind)
    fonts = _fonts(frozenset("".join([*rows, *columns])))
    lines = [f"{KINDS[kind]}, layer {layer + 1} of {len(weights)}"]
    if len(rows) < len(all_rows) or len(columns) < len(all_columns):
        lines.append(f"rows 1 to {len(rows)} of {len(all_rows)}, columns 1 to {len(columns)} of {len(all_columns)}")
    lines += textwrap.wrap(fonts.note(), 48)
    header = [*(_text(line, 13, tuple(fonts.families)) for line in lines), _scale()]
    top = _LINE * len(header) + _GAP

    layout = _layout(rows, columns, fonts, len(heads))
    width = layout.left + layout.across * layout.panel_width
    canvas = np.full((top + layout.height(len(heads)), max(_CARD, width), 3), 255, np.uint8)
    for number, line in enumerate(header):
        _draw(canvas, line, _GAP // 2 + number * _LINE, _GAP)
    for number, head in enumerate(heads):
        y = top + number // layout.across * layout.panel_height
        x = layout.left + number % layout.across * layout.panel_width
        _draw_panel(canvas, y, x, layout, f"head {head + 1}", weights[layer, head, : len(rows), : len(columns)])
    return canvas


def _layout(rows: Sequence[str], columns: Sequence[str], fonts: Fonts, num_heads: int) -> _Layout:
    """The largest cells of which a panel fits on the card; else as many panels beside each other as below."""
    for cell in _CELLS:
        row_labels, column_labels = (
            [_label(fonts.drawable(piece), cell - 5, tuple(fonts.families)) for piece in pieces]
            for pieces in (rows, columns)
        )
        left, below = (_GAP + max(label.shape[1] for label in labels) for labels in (row_labels, column_labels))
        panel_width = max(cell * len(columns) + _GAP, _NARROWEST_PANEL)
        across = min(num_heads, (_CARD - left) // panel_width)
        if across >= 1:
            break
    else:
        across = math.ceil(num_heads**0.5)
    return _Layout(cell, across, row_labels, column_labels, left, below, panel_width)


def _draw_panel(canvas: np.ndarray, y: int, x: int, layout: _Layout, title: str, weights: np.ndarray) -> None:
    """One head: its name, its weights, the pieces below, and on the left where it is the first of its row."""
    cell = layout.cell
    _draw(canvas, _text(title, 12), y, x)
    y += _LINE
    cells = _cells(weights, cell)
    canvas[y : y + cells.shape[0], x : x + cells.shape[1]] = cells
    for index, label in enumerate(layout.column_labels):  # from below upwards, ending at the cells
        turned = np.rot90(label)
        _draw(canvas, turned, y + cells.shape[0] + 2, x + index * cell + (cell - turned.shape[1]) // 2)
    if x == layout.left:
        for index, label in enumerate(layout.row_labels):
            _draw(canvas, label, y + index * cell + (cell - label.shape[0]) // 2, x - 3 - label.shape[1])


def _cells(weights: np.ndarray, cell: int) -> np.ndarray:
    """`(T, S)` weights -> `(T * cell, S * cell, 3)` pixels; the same colour is the same weight in every picture."""
    levels = (255 * np.clip(np.nan_to_num(weights), 0, 1)).round().astype(np.uint8)
    pixels = _blues()[levels].repeat(cell, axis=0).repeat(cell, axis=1)
    pixels[::cell] = _GRID
    pixels[:, ::cell] = _GRID
    return pixels


def _scale() -> np.ndarray:
    """What the colours mean."""
    before, after = _text("weight 0", 12), _text("1", 12)
    bar = _blues()[np.linspace(0, 255, 80).astype(np.uint8)][None].repeat(10, axis=0)
    line = np.full((_LINE, before.shape[1] + after.shape[1] + 95, 3), 255, np.uint8)
    _draw(line, before, 0, 0)
    line[3:13, before.shape[1] + 6 :][:, :80] = bar
    _draw(line, after, 0, before.shape[1] + 92)
    return line


def _draw(canvas: np.ndarray, ink: np.ndarray, y: int, x: int) -> None:
    """Puts black ink, `(h, w)`, or a small picture, `(h, w, 3)`, on the canvas, as far as it lies on it."""
    ink = ink[max(0, -y) :, max(0, -x) :]
    place = canvas[max(0, y) :, max(0, x) :][: ink.shape[0], : ink.shape[1]]
    ink = ink[: place.shape[0], : place.shape[1]]
    np.minimum(place, ink if ink.ndim == 3 else 255 - ink[..., None], out=place)


def _label(text: str, size: int, families: tuple[str, ...]) -> np.ndarray:
    short = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return _text(short, size, families)[:, :_WIDEST_LABEL]


@functools.lru_cache(maxsize=4096)
def _text(text: str, size: int, families: tuple[str, ...] = ("DejaVu Sans",)) -> np.ndarray:
    """A line of text as ink, `(h, w)`, uint8: all lines of a size are as high. The same pieces come at every step."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=list(families), size=size)
    width, _, _ = RendererAgg(1, 1, 72).get_text_width_height_descent(text or " ", font, False)
    renderer = RendererAgg(math.ceil(width) + 2, math.ceil(1.5 * size), 72)
    renderer.draw_text(renderer.new_gc(), 1, math.ceil(1.1 * size), text or " ", font, 0)
    return np.asarray(renderer.buffer_rgba())[..., 3].copy()


@functools.lru_cache(maxsize=256)
def _fonts(characters: frozenset[str]) -> Fonts:
    return Fonts(characters)


@functools.cache
def _blues() -> np.ndarray:
    """`(256, 3)`, uint8: white to dark blue."""
    from matplotlib import colormaps

    return colormaps["Blues"](np.arange(256), bytes=True)[:, :3]
