"""One layer of the encoder: self-attention, then the feed-forward network, each with its residual connection."""

from typing import Any

import keras

from keras_transformer.layers.masks import combine_masks, key_mask
from keras_transformer.layers.transformer_layer import TransformerLayer

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(TransformerLayer):
    """x = LN(x + SelfAttention(x)); x = LN(x + FFN(x)), as in the paper; pre-norm by switch.

    Without positions in its input the layer is permutation-equivariant: it sees a set, not a sequence.

    Args:
        num_heads, d_ff, dropout, attention_dropout, activation, normalize_first, layer_norm_epsilon, key_dim,
        value_dim, kernel_initializer, bias_initializer, seed, **kwargs: As in `TransformerLayer`.

    Call arguments:
        encoder_sequence: `(B, S, D)`, floating point.
        attention_mask: `(B|1, S|1, S)` or rank 4 with heads, bool, `True` = may be attended to; usually
            `padding_mask(token_ids)`.
        mask, encoder_sequence_mask: `(B, S)`, bool, filled by Keras from the input's implicit mask.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the weights too.

    Returns:
        `(B, S, D)`, in the compute dtype; with scores a pair with the weights, `(B, N, S, S)`, float32 or better.

    Raises:
        ValueError, TypeError: As `MultiHeadAttention` does.

    Masking:
        Hides keys; explicit and implicit masks hold together.

    Example:
        >>> token_ids = np.array([[5, 7, 9], [5, 7, 0]])
        >>> sequence = PositionalEmbedding(vocabulary_size=10, d_model=16)(token_ids)
        >>> output = EncoderLayer(num_heads=4, d_ff=32)(sequence, attention_mask=padding_mask(token_ids))

    Reference:
        Vaswani et al. (2017), section 3.1 and figure 1, left.
    """

    def build(self, encoder_sequence_shape: tuple) -> None:
        self.self_attention = self.make_attention(encoder_sequence_shape[-1], "self_attention")
        self.self_attention_residual = self.make_residual("self_attention_residual")
        self.feed_forward = self.make_feed_forward()
        self.feed_forward_residual = self.make_residual("feed_forward_residual")
        for layer in (
            self.self_attention,
            self.self_attention_residual,
            self.feed_forward,
            self.feed_forward_residual,
        ):
            layer.build(encoder_sequence_shape)

    def call(
        self,
        encoder_sequence: Tensor,
        attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        encoder_sequence_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        x = encoder_sequence
        read = self.self_attention_residual.before(x)
        attended, scores = self.self_attention(
            read,
            read,
            attention_mask=combine_masks(attention_mask, key_mask(mask), key_mask(encoder_sequence_mask)),
            training=training,
            return_attention_scores=True,
        )
        x = self.self_attention_residual(x, attended, training=training)

        read = self.feed_forward_residual.before(x)
        x = self.feed_forward_residual(x, self.feed_forward(read, training=training), training=training)
        return (x, scores) if return_attention_scores else x
