"""Crossentropy with label smoothing."""

from typing import Any

import keras
from keras import ops

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class SmoothedCrossentropy(keras.losses.Loss):
    """Crossentropy of integer labels, softened: 1 - eps on the label and eps/V spread over all V entries.

    loss = (1 - eps) * -log p(label) + eps * mean over the vocabulary of -log p. No one-hot of the vocabulary's size is
    made. Padding is taken out by `sample_weight`; the mean is over the weights' sum, that is over real tokens.

    Args:
        label_smoothing: eps, 0 <= eps < 1; 0.1 in the paper.
        reduction: As in Keras; the default divides by the sum of `sample_weight`.
        name: The loss's name.
        **kwargs: `dtype`.

    Call arguments:
        y_true: `(B, T)`, integer labels.
        y_pred: `(B, T, V)`, logits.

    Returns:
        `call` gives the unreduced values, `(B, T)`, float32 or better; the object called gives their mean.

    Reference:
        Vaswani et al. (2017), section 5.4; Szegedy et al. (2016), section 7.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        reduction: str = "mean_with_sample_weight",
        name: str = "smoothed_crossentropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be 0 <= eps < 1. Received: label_smoothing={label_smoothing!r}")
        self.label_smoothing = label_smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logits = ops.cast(y_pred, keras.backend.result_type(y_pred.dtype, "float32"))
        return _smoothed_crossentropy(logits, ops.cast(y_true, "int32"), self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {**config, "label_smoothing": self.label_smoothing}


def label_log_likelihood(y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(label), the log of the softmax's denominator, and the logits in float32 or better.

    Args:
        y_true: `(B, T)`, labels of any number type.
        y_pred: `(B, T, V)`, logits.
    """
    logits = ops.cast(y_pred, keras.backend.result_type(y_pred.dtype, "float32"))
    highest, _, total = _exponentials(logits)
    log_normalizer = ops.log(total) + highest
    return _at_labels(logits, ops.cast(y_true, "int32")) - log_normalizer, log_normalizer, logits


def _smoothed_crossentropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """The loss with its gradient written out: softmax(logits) - (1 - eps) at the label - eps/V everywhere.

    Left to itself, a backend makes a tensor of the logits' size for each term of the loss, and adds them up.
    """

    @ops.custom_gradient
    def loss_of(logits: Tensor) -> tuple[Tensor, Any]:
        highest, exponentials, total = _exponentials(logits)
        log_normalizer, label_logits = ops.log(total) + highest, _at_labels(logits, labels)
        loss = log_normalizer - label_logits
        if label_smoothing:
            uniform = log_normalizer - ops.mean(logits, axis=-1)  # mean of -log p over the vocabulary
            loss = (1 - label_smoothing) * loss + label_smoothing * uniform

        def gradient(*arguments: Tensor, upstream: Tensor | None = None) -> Tensor:
            upstream = arguments[0] if upstream is None else upstream  # Keras: the backends differ here
            vocabulary = exponentials.shape[-1]
            spread = label_smoothing / vocabulary
            others = exponentials * ops.expand_dims(upstream / total, -1)
            if label_smoothing:
                others = others - ops.expand_dims(upstream * spread, -1)
            label = upstream * (ops.exp(label_logits - log_normalizer) - spread - (1 - label_smoothing))
            others, label = ops.reshape(others, (-1, vocabulary)), ops.reshape(label, (-1,))
            rows = ops.arange(ops.shape(label)[0], dtype="int32")
            places = ops.stack([rows, ops.reshape(labels, (-1,))], axis=-1)  # (B * T, 2)
            return ops.reshape(ops.scatter_update(others, places, label), ops.shape(exponentials))

        return loss, gradient

    return loss_of(logits)


def _exponentials(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The highest logit m, e^(logits - m) and their sum: the softmax in parts, (B, T), (B, T, V) and (B, T)."""
    highest = ops.max(logits, axis=-1)
    exponentials = ops.exp(logits - ops.expand_dims(highest, -1))
    return highest, exponentials, ops.sum(exponentials, axis=-1)


def _at_labels(logits: Tensor, labels: Tensor) -> Tensor:
    return ops.squeeze(ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1), -1)  # (B, T, V) -> (B, T)
