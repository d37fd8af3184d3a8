"""The encoder: from embedded source tokens to the memory that the decoder reads."""

from typing import Any

import keras

from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.models.layer_stack import LayerStack

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(LayerStack):
    """A stack of `EncoderLayer`s.

    Args:
        num_layers, num_heads, d_ff, ...: As in `LayerStack`.

    Call arguments:
        encoder_sequence: `(B, S, D)`, embedded tokens with their positions.
        encoder_padding_mask: `(B|1, S|1, S)`, bool, `True` = real token.
        training: Whether dropout is on.
        return_attention_scores: Whether to return every layer's weights too.

    Returns:
        `(B, S, D)`; with scores a pair with the list of the layers' weights, each `(B, N, S, S)`.

    Reference:
        Vaswani et al. (2017), section 3.1.
    """

    layer_class = EncoderLayer

    def build(self, encoder_sequence_shape: tuple) -> None:
        self.build_stack(encoder_sequence_shape)

    def call(
        self,
        encoder_sequence: Tensor,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        x, scores = encoder_sequence, []
        for layer in self.layers:
            x, layer_scores = layer(
                x, attention_mask=encoder_padding_mask, training=training, return_attention_scores=True
            )
            scores.append(layer_scores)
        x = self.finish(x)
        return (x, scores) if return_attention_scores else x
