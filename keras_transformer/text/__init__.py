"""Text to token ids and back, in the TensorFlow graph."""

from keras_transformer.text.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
