"""Attention as a page: point at a piece and see where every head of every layer looked."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.visualization.attention_maps import KINDS, AttentionMaps

_PAGE = Path(__file__).with_suffix(".html")
_STEPS = 1000  # the page has weights in thousandths: what it shows is the weight, rounded to three decimals


def attention_page(attention: AttentionMaps, title: str | None = None) -> str:
    """The weights as one HTML page that needs nothing else: no network, no other file.

    The page is plain ASCII, so that it is the same in whatever encoding it is written. Pieces are text in it, never
    markup. It grows by some 2 to 4 bytes a weight.

    Args:
        attention: From `Translator.attention`.
        title: The page's heading; "Attention" if not given.

    Returns:
        The page.

    Raises:
        TypeError: If `attention` is something else.
        ValueError: If weights and pieces do not fit together, or a weight is not a number from 0 to 1.
    """
    if not isinstance(attention, AttentionMaps):
        raise TypeError(f"`attention` must be AttentionMaps. Received: attention={attention!r:.100}")
    data = {kind: _kind_data(attention, kind) for kind in KINDS}
    heading = html.escape("Attention" if title is None else title)
    parts = {
        "title": heading.encode("ascii", "xmlcharrefreplace").decode(),
        "data": _inside_a_script(json.dumps(data, separators=(",", ":"))),
    }
    # In one pass: a piece may well be called {{title}}.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _PAGE.read_text(encoding="ascii"))


def attention_frame(attention: AttentionMaps, height: int = 760) -> str:
    """The page in a frame of its own, for a notebook.

    Several outputs, and the notebook's own styles, do not meet; scripts inside reach nothing of the notebook.

    Args:
        attention: From `Translator.attention`.
        height: Of the frame, in pixels.

    Returns:
        An `iframe` element.
    """
    page = html.escape(attention_page(attention))
    style = f"width:100%;height:{height}px;border:0;resize:vertical"
    return f'<iframe title="Attention" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def _kind_data(attention: AttentionMaps, kind: str) -> dict[str, Any]:
    """What the page gets to know of one kind."""
    queries, keys = attention.labels(kind)
    weights = attention.checked_weights(kind)
    heads = [str(head + 1) for head in range(weights.shape[1])]
    if len(heads) > 1:
        # Here, from the weights themselves: the mean of rounded ones would be off by a digit.
        weights = np.concatenate([weights, weights.mean(axis=1, keepdims=True)], axis=1)
        heads.append("mean")
    thousandths = np.rint(weights * _STEPS).clip(0, _STEPS).astype(int)
    return {"queries": list(queries), "keys": list(keys), "heads": heads, "weights": thousandths.tolist()}


def _inside_a_script(text: str) -> str:
    """JSON that no browser takes for the end of its script, or for a comment."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
