"""The residual connection around every sublayer, and its layer normalization."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.arguments import check_probability
from keras_transformer.layers.dropout import Dropout

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class ResidualConnection(keras.layers.Layer):
    """Post-norm, as in the paper: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).

    A sublayer reads `residual.before(x)` and its output is joined by `residual(x, output)`.

    Args:
        dropout: Probability of dropping an element of the sublayer's output.
        normalize_first: `False` for post-norm (the paper), `True` for pre-norm.
        layer_norm_epsilon: Added to the variance.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        sequence: `(B, T, D)`, x.
        output: `(B, T, D)`, Sublayer(before(x)).
        training: Whether dropout is on.

    Returns:
        `(B, T, D)`, in the compute dtype.

    Reference:
        Vaswani et al. (2017), sections 3.1 and 5.4; pre-norm: Xiong et al. (2020), "On Layer Normalization in the
        Transformer Architecture".
    """

    def __init__(
        self,
        dropout: float = 0.0,
        normalize_first: bool = False,
        layer_norm_epsilon: float = 1e-6,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dropout = check_probability("dropout", dropout)
        self.normalize_first = normalize_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.seed = seed
        self.norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm")
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def build(self, sequence_shape: tuple, output_shape: tuple | None = None) -> None:
        self.norm.build(sequence_shape)

    def before(self, sequence: Tensor) -> Tensor:
        """What the sublayer reads: x itself, or LayerNorm(x) with pre-norm."""
        return normalize(self.norm, sequence) if self.normalize_first else sequence

    def call(self, sequence: Tensor, output: Tensor, training: bool | None = None) -> Tensor:
        joined = sequence + self.dropout_layer(output, training=training)
        return joined if self.normalize_first else normalize(self.norm, joined)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "seed": self.seed,
        }


def normalize(norm: keras.layers.LayerNormalization, sequence: Tensor) -> Tensor:
    """Normalizes all positions, below each other: XLA:CPU sums the gain's gradient over rows faster than over axes."""
    if len(sequence.shape) == 2:
        return norm(sequence)
    rows = ops.reshape(sequence, (-1, sequence.shape[-1]))  # (B, T, D) -> (B * T, D)
    return ops.reshape(norm(rows), ops.shape(sequence))
