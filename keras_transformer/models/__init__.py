"""Encoder, decoder and the Transformer; `keras.ops` only."""

from keras_transformer.models.decoder import Decoder
from keras_transformer.models.distributed_model import DistributedModel
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.transformer import Transformer

__all__ = ["Decoder", "DistributedModel", "Encoder", "Transformer"]
