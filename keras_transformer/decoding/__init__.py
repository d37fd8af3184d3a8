"""From logits to ids; `keras.ops` only."""

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.sampling import sample

__all__ = ["beam_search", "length_penalty", "sample"]
