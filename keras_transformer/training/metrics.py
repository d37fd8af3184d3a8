"""What is counted per real token: accuracy and perplexity. Use them as `weighted_metrics`."""

from typing import Any

import keras
from keras import ops

from keras_transformer.training.losses import label_log_likelihood

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(keras.metrics.Mean):
    """Share of real tokens whose most likely prediction is the label.

    Call arguments:
        y_true: `(B, T)`, integer labels.
        y_pred: `(B, T, V)`, logits.
        sample_weight: `(B, T)`, 0 on padding. Compile the metric under `weighted_metrics`, else Keras gives none.
    """

    def __init__(self, name: str = "token_accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        hits = ops.equal(ops.cast(y_true, "int32"), most_likely(y_pred))
        return super().update_state(ops.cast(hits, self.dtype), sample_weight=sample_weight)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp of the mean negative log-likelihood of real tokens, without label smoothing.

    Call arguments:
        As `TokenAccuracy`.
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        likelihood, _, _ = label_log_likelihood(y_true, y_pred)
        return super().update_state(-likelihood, sample_weight=sample_weight)

    def result(self) -> Tensor:
        return ops.exp(super().result())


def most_likely(logits: Tensor) -> Tensor:
    """argmax over the vocabulary, the first of equals: `(..., V)` -> `(...)`, int32.

    Two reductions that vectorize, of which XLA shares the first with the loss, in place of one of pairs that does not:
    a twentieth of a training step of the small model on a CPU. Rows with NaN get V, no token's id.
    """
    vocabulary = ops.shape(logits)[-1]
    is_highest = ops.equal(logits, ops.max(logits, axis=-1, keepdims=True))
    ids = ops.arange(vocabulary, dtype="int32")
    return ops.min(ops.where(is_highest, ids, ops.cast(vocabulary, "int32")), axis=-1)
