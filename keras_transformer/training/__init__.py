"""Loss, metrics and the learning rate's schedule."""

from keras_transformer.training.losses import SmoothedCrossentropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.warmup_schedule import WarmupSchedule, transformer_optimizer

__all__ = ["Perplexity", "SmoothedCrossentropy", "TokenAccuracy", "WarmupSchedule", "transformer_optimizer"]
