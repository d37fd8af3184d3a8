"""What an encoder layer and a decoder layer share: their arguments, and how they make their sublayers."""

from typing import Any

import keras

from keras_transformer.layers.arguments import (
    check_positive,
    check_probability,
    clone_initializer,
    derive_seed,
    head_size,
)
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.residual import ResidualConnection


class TransformerLayer(keras.layers.Layer):
    """Base of `EncoderLayer` and `DecoderLayer`.

    Args:
        num_heads: Number of attention heads.
        d_ff: Width of the feed-forward network's hidden layer.
        dropout: Probability of dropping an element of a sublayer's output, before it is added.
        attention_dropout: Probability of dropping an attention weight. 0 in the paper.
        activation: Activation of the feed-forward network.
        normalize_first: `False` for post-norm (the paper), `True` for pre-norm.
        layer_norm_epsilon: Added to the variance in layer normalization.
        key_dim: Size of each head's queries and keys; width / num_heads if not given.
        value_dim: Size of each head's values; `key_dim` if not given.
        kernel_initializer, bias_initializer: For every projection.
        seed: Seed of the dropouts.
        **kwargs: `name`, `dtype`, `trainable`.
    """

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: Any = "relu",
        normalize_first: bool = False,
        layer_norm_epsilon: float = 1e-6,
        key_dim: int | None = None,
        value_dim: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = check_positive("num_heads", num_heads)
        self.d_ff = check_positive("d_ff", d_ff)
        self.dropout = check_probability("dropout", dropout)
        self.attention_dropout = check_probability("attention_dropout", attention_dropout)
        self.activation = keras.activations.get(activation)
        self.normalize_first = normalize_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.key_dim = None if key_dim is None else check_positive("key_dim", key_dim)
        self.value_dim = None if value_dim is None else check_positive("value_dim", value_dim)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed

    def make_attention(self, d_model: int, name: str) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.num_heads,
            head_size(self.key_dim, d_model, self.num_heads),
            value_dim=self.value_dim,
            dropout=self.attention_dropout,
            kernel_initializer=clone_initializer(self.kernel_initializer),
            bias_initializer=clone_initializer(self.bias_initializer),
            seed=derive_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )

    def make_feed_forward(self) -> FeedForward:
        return FeedForward(
            self.d_ff,
            activation=self.activation,
            kernel_initializer=clone_initializer(self.kernel_initializer),
            bias_initializer=clone_initializer(self.bias_initializer),
            seed=derive_seed(self.seed, "feed_forward"),
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def make_residual(self, name: str) -> ResidualConnection:
        return ResidualConnection(
            self.dropout,
            normalize_first=self.normalize_first,
            layer_norm_epsilon=self.layer_norm_epsilon,
            seed=derive_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": keras.activations.serialize(self.activation),
            "normalize_first": self.normalize_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.seed,
        }
