"""One idea of the paper a file; `keras.ops` only, so that every layer runs on each of Keras' backends."""

from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import combine_masks, look_ahead_mask, padding_mask
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.positional_embedding import PositionalEmbedding
from keras_transformer.layers.positional_encoding import position_rotation, positional_encoding
from keras_transformer.layers.residual import ResidualConnection
from keras_transformer.layers.scaled_dot_product_attention import scaled_dot_product_attention

__all__ = [
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "ResidualConnection",
    "combine_masks",
    "look_ahead_mask",
    "padding_mask",
    "position_rotation",
    "positional_encoding",
    "scaled_dot_product_attention",
]
