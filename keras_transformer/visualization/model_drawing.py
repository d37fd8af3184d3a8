"""A model as the paper's figure 1 draws it, made from the model itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from keras_transformer.models.transformer import Transformer
from keras_transformer.visualization.picture import Picture

_WHITE, _ROSE, _ORANGE, _BLUE, _YELLOW, _VIOLET = "white", "#fbdcdc", "#fde3c0", "#cfe7f5", "#f6f3c4", "#dedaf2"
_WIDTH, _HEIGHT, _STEP = 5.8, 0.64, 1.1  # of a box, and from box to box, in the drawing's own units
_APART = 8.8  # from the encoder's middle to the decoder's


class _Box(NamedTuple):
    text: str
    color: str
    residual_from: int = 0  # so many boxes below, the residual connection leaves; 0: none comes in here
    reads_encoder: bool = False


class _Side(NamedTuple):
    """Boxes from below to above: before the layers, one of the layers, which are alike, and after them."""

    before: list[_Box]
    layer: list[_Box]
    after: list[_Box]
    num_layers: int

    @property
    def boxes(self) -> list[_Box]:
        return [*self.before, *self.layer, *self.after]


def plot_transformer(model: Transformer) -> Picture:
    """Draws encoder and decoder: their sublayers, residual connections, sizes and numbers of parameters.

    Args:
        model: A `Transformer` that has its weights: after its first call, `fit` or `build()`.

    Returns:
        A `matplotlib.figure.Figure`, read from below to above as the paper's figure 1.

    Raises:
        TypeError: If `model` is no `Transformer`.
        ValueError: If the model has no weights yet.

    Example:
        >>> model = Transformer.from_preset("tiny", source_vocabulary_size=100)
        >>> model.build()
        >>> picture = plot_transformer(model)

    Reference:
        Vaswani et al. (2017), figure 1.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"`model` must be a Transformer. Received: {type(model).__name__}")
    if not model.built:
        raise ValueError(f"`model` has no weights yet: call `model.build()` first. Received: {model.name}")
    encoder, decoder = _encoder(model), _decoder(model)
    height = _STEP * max(len(encoder.boxes), len(decoder.boxes))
    figure = Picture(9.6, 0.55 * height + 0.5)
    axis = figure.subplots()
    axis.set(xlim=(-3.7, _APART + 4.2), ylim=(-0.5, height - 0.6), aspect="equal")
    axis.axis("off")
    _draw(axis, 0.0, encoder)
    _draw(axis, _APART, decoder)
    _join(axis, encoder, decoder)
    norm = "pre-norm" if model.config["normalize_first"] else "post-norm, as in the paper"
    figure.suptitle(f"{model.name}: {model.count_params():,} parameters, {norm}", fontsize=11, parse_math=False)
    return figure


def _encoder(model: Any) -> _Side:
    first = model.encoder.layers[0]
    sublayers = [(first.self_attention, "self-attention", first.self_attention_residual)]
    sublayers.append((first.feed_forward, "feed-forward", first.feed_forward_residual))
    before = _inputs("encoder_token_ids (B, S)", model.source_embedding, model.config["d_model"])
    return _Side(before, _layer(sublayers), _final_norm(model.encoder), model.encoder.num_layers)


def _decoder(model: Any) -> _Side:
    first = model.decoder.layers[0]
    sublayers = [(first.self_attention, "masked self-attention", first.self_attention_residual)]
    sublayers.append((first.cross_attention, "cross-attention", first.cross_attention_residual))
    sublayers.append((first.feed_forward, "feed-forward", first.feed_forward_residual))
    shared = model.target_embedding is model.source_embedding
    before = _inputs("decoder_token_ids (B, T)", model.target_embedding, model.config["d_model"], shared)
    vocabulary = model.config["target_vocabulary_size"]
    logits = _Box(f"logits (B, T, {vocabulary:,}): the embedding again", _VIOLET)
    return _Side(before, _layer(sublayers), [*_final_norm(model.decoder), logits], model.decoder.num_layers)


def _inputs(name: str, embedding: Any, d_model: int, shared: bool = False) -> list[_Box]:
    count = "the encoder's" if shared else f"{embedding.count_params():,}"
    return [_Box(name, _WHITE), _Box(f"embedding in {d_model} dimensions, positions: {count}", _ROSE)]


def _layer(sublayers: list[tuple[Any, str, Any]]) -> list[_Box]:
    boxes = []
    for sublayer, name, residual in sublayers:
        attention = hasattr(sublayer, "num_heads")
        size = (
            f"{sublayer.num_heads} {'head' if sublayer.num_heads == 1 else 'heads'} of {sublayer.key_dim}"
            if attention
            else f"{sublayer.d_ff} wide"
        )
        middle = _Box(
            f"{name}, {size}: {sublayer.count_params():,}",
            _ORANGE if attention else _BLUE,
            reads_encoder=name == "cross-attention",
        )
        norm = f"{residual.count_params():,}"
        if residual.normalize_first:
            boxes += [_Box(f"normalize: {norm}", _YELLOW), middle, _Box("add", _YELLOW, residual_from=2)]
        else:
            boxes += [middle, _Box(f"add, normalize: {norm}", _YELLOW, residual_from=1)]
    return boxes


def _final_norm(stack: Any) -> list[_Box]:
    return [] if stack.final_norm is None else [_Box(f"normalize: {stack.final_norm.count_params():,}", _YELLOW)]


def _draw(axis: Axes, x: float, side: _Side) -> None:
    for level, box in enumerate(side.boxes):
        y = level * _STEP
        patch = FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2), _WIDTH, _HEIGHT, boxstyle="round,pad=0,rounding_size=0.12"
        )
        patch.set(facecolor=box.color, edgecolor="0.35", linewidth=0.8, zorder=2)
        axis.add_patch(patch)
        axis.text(x, y, box.text, ha="center", va="center", fontsize=8, zorder=3)
        if level:
            _arrow(axis, [(x, y - _STEP + _HEIGHT / 2), (x, y - _HEIGHT / 2)])
        if box.residual_from:
            below, left = y - (box.residual_from + 0.5) * _STEP, x - _WIDTH / 2
            _arrow(axis, [(x, below), (left - 0.35, below), (left - 0.35, y), (left, y)])
    low, high = len(side.before) * _STEP - 0.67, (len(side.before) + len(side.layer)) * _STEP - 0.67
    frame = Rectangle((x - _WIDTH / 2 - 0.6, low), _WIDTH + 0.9, high - low, fill=False, ls="--", ec="0.6", lw=0.8)
    axis.add_patch(frame)
    axis.text(x + _WIDTH / 2 + 0.42, (low + high) / 2, f"× {side.num_layers}", va="center", fontsize=11)


def _join(axis: Axes, encoder: _Side, decoder: _Side) -> None:
    """From the encoder's output to the cross-attention of every decoder layer."""
    top = (len(encoder.boxes) - 1) * _STEP
    for level, box in enumerate(decoder.boxes):
        if box.reads_encoder:
            between, y = _APART / 2 + 0.35, level * _STEP
            out = top + _STEP / 2
            _arrow(
                axis,
                [(0, top + _HEIGHT / 2), (0, out), (between, out), (between, y), (_APART - _WIDTH / 2, y)],
                color="#b3541e",
            )
            axis.text(between - 0.1, out + 0.12, "keys and values", ha="right", fontsize=8, color="#b3541e")


def _arrow(axis: Axes, points: list[tuple[float, float]], color: str = "0.35") -> None:
    xs, ys = zip(*points, strict=True)
    axis.plot(xs[:-1], ys[:-1], color=color, linewidth=0.9, zorder=1)
    axis.add_patch(
        FancyArrowPatch(
            points[-2], points[-1], arrowstyle="-|>", mutation_scale=8, color=color, shrinkA=0, shrinkB=0, lw=0.9
        )
    )
