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
        likelihood, log_normalizer, logits = label_log_likelihood(y_true, y_pred)
        if not self.label_smoothing:
            return -likelihood
        uniform = log_normalizer - ops.mean(logits, axis=-1)  # mean of -log p over the vocabulary
        return -(1 - self.label_smoothing) * likelihood + self.label_smoothing * uniform

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
    log_normalizer = ops.logsumexp(logits, axis=-1)  # (B, T, V) -> (B, T)
    labels = ops.expand_dims(ops.cast(y_true, "int32"), -1)
    label_logits = ops.squeeze(ops.take_along_axis(logits, labels, axis=-1), -1)
    return label_logits - log_normalizer, log_normalizer, logits
