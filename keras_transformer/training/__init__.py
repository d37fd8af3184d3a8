"""Loss, metrics, the learning rate's schedule, and callbacks."""

from keras_transformer.training.averaging import average_checkpoints
from keras_transformer.training.bleu import BleuCallback
from keras_transformer.training.checkpointing import Checkpointing
from keras_transformer.training.losses import SmoothedCrossentropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.nan_guard import StopOnNaN
from keras_transformer.training.rendezvous import multi_worker_strategy
from keras_transformer.training.training_curves import TrainingCurves
from keras_transformer.training.warmup_schedule import WarmupSchedule, transformer_optimizer

__all__ = [
    "BleuCallback",
    "Checkpointing",
    "Perplexity",
    "SmoothedCrossentropy",
    "StopOnNaN",
    "TokenAccuracy",
    "TrainingCurves",
    "WarmupSchedule",
    "average_checkpoints",
    "multi_worker_strategy",
    "transformer_optimizer",
]
