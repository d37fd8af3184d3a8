"""The decoder: from embedded target tokens and the encoder's memory to what the logits are made of."""

from typing import Any

import keras

from keras_transformer.layers.cache import Cache
from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.models.layer_stack import LayerStack

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(LayerStack):
    """A stack of `DecoderLayer`s: position t is a function of target positions 0..t and of the whole source.

    Args:
        num_layers, num_heads, d_ff, ...: As in `LayerStack`.

    Call arguments:
        decoder_sequence: `(B, T, D)`, embedded tokens with their positions.
        encoder_sequence: `(B, S, D)`, the encoder's output. Not needed with a cache.
        decoder_padding_mask: `(B|1, T|1, T)`, bool, `True` = real token.
        encoder_padding_mask: `(B|1, T|1, S)`, bool, `True` = real token.
        training: Whether dropout is on.
        return_attention_scores: Whether to return every layer's weights too.
        cache: From `init_cache`. With it, `decoder_sequence` holds the tokens from position `cache_index` on.
        cache_index: Scalar integer.

    Returns:
        `(B, T, D)`; with scores also the lists of the layers' self-attention weights, `(B, N, T, T|L)`, and of their
        cross-attention weights, `(B, N, T, S)`; with a cache also the updated cache. Several as a tuple.

    Reference:
        Vaswani et al. (2017), section 3.1.
    """

    layer_class = DecoderLayer

    def build(self, decoder_sequence_shape: tuple, encoder_sequence_shape: tuple | None = None) -> None:
        self.build_stack(decoder_sequence_shape, encoder_sequence_shape or decoder_sequence_shape)

    def call(
        self,
        decoder_sequence: Tensor,
        encoder_sequence: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        cache: list[dict[str, Cache]] | None = None,
        cache_index: int | Tensor | None = None,
    ) -> Any:
        x, self_scores, cross_scores, new_cache = decoder_sequence, [], [], []
        for index, layer in enumerate(self.layers):
            x, layer_self_scores, layer_cross_scores, *layer_cache = layer(
                x,
                encoder_sequence,
                attention_mask=decoder_padding_mask,
                encoder_padding_mask=encoder_padding_mask,
                training=training,
                return_attention_scores=True,
                cache=None if cache is None else cache[index],
                cache_index=cache_index,
            )
            self_scores.append(layer_self_scores)
            cross_scores.append(layer_cross_scores)
            new_cache.extend(layer_cache)
        x = self.finish(x)
        scores = (self_scores, cross_scores) if return_attention_scores else ()
        caches = (new_cache,) if cache is not None else ()
        return (x, *scores, *caches) if scores or caches else x

    def init_cache(self, encoder_sequence: Tensor, max_length: int) -> list[dict[str, Cache]]:
        """Every layer's cache before the first token. See `DecoderLayer.init_cache`."""
        return [layer.init_cache(encoder_sequence, max_length) for layer in self.layers]
