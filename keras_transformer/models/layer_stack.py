"""What the encoder and the decoder share: N layers in a row, and with pre-norm a last normalization."""

from typing import Any, ClassVar

import keras

from keras_transformer.layers.arguments import check_positive, derive_seed
from keras_transformer.layers.transformer_layer import TransformerLayer


class LayerStack(keras.layers.Layer):
    """Base of `Encoder` and `Decoder`.

    Args:
        num_layers: Number of layers.
        num_heads: Number of attention heads.
        d_ff: Width of the feed-forward networks' hidden layers.
        dropout: Probability of dropping an element of a sublayer's output.
        attention_dropout: Probability of dropping an attention weight.
        activation: Activation of the feed-forward networks.
        normalize_first: `False` for post-norm (the paper), `True` for pre-norm with a normalization at the end.
        layer_norm_epsilon: Added to the variance in layer normalization.
        key_dim, value_dim: Size of each head's queries and keys, and of its values.
        seed: Seed of the dropouts.
        **kwargs: `name`, `dtype`, `trainable`.
    """

    layer_class: ClassVar[type[TransformerLayer]]

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: Any = "relu",
        normalize_first: bool = False,
        layer_norm_epsilon: float = 1e-6,
        key_dim: int | None = None,
        value_dim: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_layers = check_positive("num_layers", num_layers)
        self.seed = seed
        self.layers = [
            self.layer_class(
                num_heads,
                d_ff,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation=activation,
                normalize_first=normalize_first,
                layer_norm_epsilon=layer_norm_epsilon,
                key_dim=key_dim,
                value_dim=value_dim,
                seed=derive_seed(seed, f"layer_{index}"),
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(num_layers)
        ]
        self.final_norm = (
            keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="final_norm")
            if normalize_first
            else None
        )

    def build_stack(self, *shapes: tuple) -> None:
        for layer in self.layers:
            layer.build(*shapes)
        if self.final_norm is not None:
            self.final_norm.build(shapes[0])

    def finish(self, sequence: Any) -> Any:
        """The last normalization, which post-norm layers have made already."""
        return sequence if self.final_norm is None else self.final_norm(sequence)

    def get_config(self) -> dict[str, Any]:
        first = self.layers[0].get_config()
        shared = ("num_heads", "d_ff", "dropout", "attention_dropout", "activation", "normalize_first")
        sizes = ("layer_norm_epsilon", "key_dim", "value_dim")
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **{name: first[name] for name in (*shared, *sizes)},
            "seed": self.seed,
        }
