"""The position-wise feed-forward network: the same two-layer network at every position, alone."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.arguments import check_positive, check_probability, clone_initializer
from keras_transformer.layers.dropout import Dropout

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2.

    No position sees another: what attention has gathered at a position is worked on there.

    Args:
        d_ff: Width of the hidden layer.
        activation: Activation of the hidden layer; the paper's is "relu".
        dropout: Probability of dropping a hidden unit. 0 in the paper, which drops only the block's output (that is
            the business of `EncoderLayer` and `DecoderLayer`).
        kernel_initializer, bias_initializer: For both projections.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        sequence: `(B, T, D)`, floating point.
        training: Whether dropout is on.

    Returns:
        `(B, T, D)`, in the compute dtype.

    Raises:
        ValueError: If an argument has an impossible value.

    Masking:
        None needed; an implicit mask passes through.

    Example:
        >>> output = FeedForward(d_ff=32)(np.ones((2, 5, 16), "float32"))

    Reference:
        Vaswani et al. (2017), section 3.3, equation 2.
    """

    def __init__(
        self,
        d_ff: int,
        activation: Any = "relu",
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.d_ff = check_positive("d_ff", d_ff)
        self.activation = keras.activations.get(activation)
        self.dropout = check_probability("dropout", dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed
        self.hidden_dense = self._dense(d_ff, "hidden", self.activation)
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def _dense(self, units: int, name: str, activation: Any = None) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=clone_initializer(self.kernel_initializer),
            bias_initializer=clone_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, sequence_shape: tuple) -> None:
        self.hidden_dense.build(sequence_shape)
        self.output_dense = self._dense(sequence_shape[-1], "output")
        self.output_dense.build((*sequence_shape[:-1], self.d_ff))

    def call(self, sequence: Tensor, training: bool | None = None) -> Tensor:
        # All positions below each other: XLA:CPU sums a bias' gradient over rows faster than over two axes.
        rows = ops.reshape(sequence, (-1, sequence.shape[-1]))  # (B, T, D) -> (B * T, D)
        hidden = self.dropout_layer(self.hidden_dense(rows), training=training)  # (B * T, F)
        return ops.reshape(self.output_dense(hidden), ops.shape(sequence))  # (B, T, D)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.seed,
        }
