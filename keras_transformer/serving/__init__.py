"""From ids to text, in Python and outside of it."""

from keras_transformer.serving.translator import Hypothesis, Translator

__all__ = ["Hypothesis", "Translator"]
