"""Sinusoidal positions as a picture."""

from __future__ import annotations

from keras_transformer.layers.positional_encoding import positional_encoding
from keras_transformer.visualization.picture import Picture


def plot_positional_encoding(length: int = 100, d_model: int = 128) -> Picture:
    """Draws the sinusoids: a row for each position, a column for each dimension, and four of them as curves.

    Args:
        length: Number of positions, 1 or more.
        d_model: Width, even.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If an argument has an impossible value.

    Reference:
        Vaswani et al. (2017), section 3.5.
    """
    table = positional_encoding(length, d_model)
    if not len(table):
        raise ValueError(f"`length` must be 1 or more. Received: length={length!r}")
    figure = Picture(10, 4)
    heat, curves = figure.subplots(1, 2, width_ratios=(1.15, 1))
    image = heat.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest", origin="lower")
    heat.set(xlabel="dimension (even: sine, odd: cosine)", ylabel="position", title=f"PE, d_model={d_model}")
    figure.colorbar(image, ax=heat)
    for dimension in sorted({d_model * quarter // 8 // 2 * 2 for quarter in range(4)}):  # slow ones hardly move
        curves.plot(table[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", title="each dimension is a wave, ever longer", xlim=(0, max(1, length - 1)))
    curves.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return figure
