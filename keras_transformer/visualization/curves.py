"""The learning rate and what was learnt, as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from keras_transformer.layers.arguments import check_positive
from keras_transformer.visualization.picture import Picture


def plot_schedule(
    schedules: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]], num_updates: int = 20_000
) -> Picture:
    """Draws learning rates over the optimizer's updates.

    Args:
        schedules: A `WarmupSchedule` or any other function of the number of updates made; or several by their names.
        num_updates: How far to draw.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If `num_updates` is not a positive integer, or there is no schedule.
        TypeError: If a schedule is no function.

    Example:
        >>> picture = plot_schedule({f"d_model={d}": WarmupSchedule(d) for d in (256, 512)})

    Reference:
        Vaswani et al. (2017), section 5.3.
    """
    named = dict(schedules) if isinstance(schedules, Mapping) else {"": schedules}
    if not named:
        raise ValueError("`schedules` must hold at least one. Received: none")
    for schedule in named.values():
        if not callable(schedule):
            raise TypeError(f"`schedules` must be functions of the number of updates. Received: {schedule!r}")
    steps = np.unique(np.linspace(0, check_positive("num_updates", num_updates) - 1, 1000).round())
    figure = Picture(6.4, 3.6)
    axis = figure.subplots()
    for name, schedule in named.items():
        rates = [float(keras.ops.convert_to_numpy(schedule(step))) for step in steps]
        axis.plot(steps + 1, rates, label=str(name))  # the rate of update n is schedule(n - 1)
    axis.set(xlabel="update", ylabel="learning rate", ylim=(0, None), xlim=(1, max(2, num_updates)))
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-3, -3))
    axis.grid(color="0.9")
    if isinstance(schedules, Mapping):
        _legend(axis)
    return figure


def plot_history(history: Any, names: list[str] | None = None) -> Picture:
    """Draws what `fit` logged, epoch by epoch: a panel for each metric, training and validation in it.

    Perplexity, an exponential, has a logarithmic axis.

    Args:
        history: What `fit` returned, or its `history` dict; or several of either by their names, to compare.
        names: Which metrics, without "val_"; all that were logged if not given.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is nothing to draw, or no such metric.
        TypeError: If `history` is something else.

    Example:
        >>> def compare(plain, warmed_up):
        ...     return plot_history({"constant rate": plain, "warm-up": warmed_up}, ["loss"])
    """
    runs = _runs(history)
    logged = list(dict.fromkeys(name.removeprefix("val_") for logs in runs.values() for name in logs))
    if not logged:
        raise ValueError("`history` must hold at least one epoch's logs. Received: none")
    names = [names] if isinstance(names, str) else names
    unknown = sorted(set(names or ()) - set(logged))
    if unknown:
        raise ValueError(f"`names` must be among {logged}. Received: {unknown}")
    names = names or logged
    per_row = min(3, len(names))
    num_rows = -(-len(names) // per_row)
    figure = Picture(0.4 + 3.8 * per_row, 0.3 + 2.9 * num_rows)
    axes = figure.subplots(num_rows, per_row, squeeze=False).flat
    for axis, name in zip(axes, names, strict=False):
        _draw_metric(axis, name, runs)
    for axis in axes[len(names) :]:
        axis.remove()
    return figure


def _runs(history: Any) -> dict[str, dict[str, list[float]]]:
    """The logs of each run by its name; one run has the name ""."""
    if isinstance(history, keras.callbacks.History):
        return {"": history.history}
    if not isinstance(history, Mapping):
        raise TypeError(f"`history` must be what `fit` returned, or a dict. Received: {type(history).__name__}")
    runs = [value for value in history.values() if isinstance(value, (keras.callbacks.History, Mapping))]
    if not runs:
        return {"": dict(history)}
    if len(runs) < len(history):
        raise TypeError("`history` must be one run's logs, or several runs by their names. Received: a mixture")
    return {str(name): _runs(value)[""] if value else {} for name, value in history.items()}


def _draw_metric(axis: Any, name: str, runs: Mapping[str, Mapping[str, list[float]]]) -> None:
    """Solid for training, dashed for validation, a colour for each run."""
    for number, (run, logs) in enumerate(runs.items()):
        for key, style, side in ((name, "-", "training"), (f"val_{name}", "--", "validation")):
            if key in logs:
                epochs = range(1, len(logs[key]) + 1)
                label = ", ".join(filter(None, (run, side)))
                axis.plot(epochs, logs[key], style, color=f"C{number}", label=label, marker=".")
    axis.set_title(name.replace("_", " "), parse_math=False)
    axis.set_xlabel("epoch")
    if name == "perplexity":
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(NullLocator())
    longest = max((len(logs.get(name, ())) for logs in runs.values()), default=1)
    axis.set_xticks(range(1, max(1, longest) + 1, max(1, math.ceil((longest - 1) / 5))))
    axis.grid(color="0.9")
    _legend(axis)


def _legend(axis: Any) -> None:
    """Names as they are: no mathematics, and none left out for how it begins."""
    labels = [str(line.get_label()) for line in axis.lines]
    legend = axis.legend(
        axis.lines, [label if not label.startswith("_") else f"\u2009{label}" for label in labels], fontsize=8
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
