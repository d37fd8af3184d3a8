"""The encoder-decoder Transformer of "Attention Is All You Need" for Keras 3 on TensorFlow.

    import keras_transformer as kt

Layers, models, losses, metrics, the schedule and the search load at once. Text, data, serving and pictures load on
first use: they need TensorFlow, TF-Text or Matplotlib, which layers and models do not.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from keras_transformer._version import __version__
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.sampling import sample
from keras_transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    combine_masks,
    look_ahead_mask,
    padding_mask,
    position_rotation,
    positional_encoding,
    scaled_dot_product_attention,
)
from keras_transformer.models import Decoder, DistributedModel, Encoder, Transformer
from keras_transformer.training import (
    BleuCallback,
    Checkpointing,
    Perplexity,
    SmoothedCrossentropy,
    StopOnNaN,
    TokenAccuracy,
    TrainingCurves,
    WarmupSchedule,
    average_checkpoints,
    multi_worker_strategy,
    transformer_optimizer,
)

# TensorFlow on a CPU hands each tensor's memory back to the system, which clears every page before it lends it again:
# a quarter of a training step. Its other allocator keeps the memory. Read once, when the first tensor is made.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(1 << 24))  # none of its own; otherwise 64 GB

if TYPE_CHECKING:
    from keras_transformer.data.batching import EpochOrder, make_dataset
    from keras_transformer.data.corpus import DataError, ParallelCorpus
    from keras_transformer.serving.exported_translator import ExportedTranslator
    from keras_transformer.serving.translator import Translator
    from keras_transformer.text.tokenizer import Tokenizer
    from keras_transformer.visualization.attention_picture import plot_attention, plot_mask
    from keras_transformer.visualization.curves import plot_history, plot_schedule
    from keras_transformer.visualization.model_drawing import plot_transformer
    from keras_transformer.visualization.position_picture import plot_positional_encoding
    from keras_transformer.visualization.tensorboard import AttentionTensorBoard

_ON_FIRST_USE = {
    "AttentionTensorBoard": "keras_transformer.visualization.tensorboard",
    "DataError": "keras_transformer.data.corpus",
    "EpochOrder": "keras_transformer.data.batching",
    "ExportedTranslator": "keras_transformer.serving.exported_translator",
    "ParallelCorpus": "keras_transformer.data.corpus",
    "Tokenizer": "keras_transformer.text.tokenizer",
    "Translator": "keras_transformer.serving.translator",
    "make_dataset": "keras_transformer.data.batching",
    "plot_attention": "keras_transformer.visualization.attention_picture",
    "plot_history": "keras_transformer.visualization.curves",
    "plot_mask": "keras_transformer.visualization.attention_picture",
    "plot_positional_encoding": "keras_transformer.visualization.position_picture",
    "plot_schedule": "keras_transformer.visualization.curves",
    "plot_transformer": "keras_transformer.visualization.model_drawing",
}

__all__ = [
    "AttentionTensorBoard",
    "BleuCallback",
    "Checkpointing",
    "DataError",
    "Decoder",
    "DecoderLayer",
    "DistributedModel",
    "Encoder",
    "EncoderLayer",
    "EpochOrder",
    "ExportedTranslator",
    "FeedForward",
    "MultiHeadAttention",
    "ParallelCorpus",
    "Perplexity",
    "PositionalEmbedding",
    "SmoothedCrossentropy",
    "StopOnNaN",
    "TokenAccuracy",
    "Tokenizer",
    "TrainingCurves",
    "Transformer",
    "Translator",
    "WarmupSchedule",
    "__version__",
    "average_checkpoints",
    "beam_search",
    "combine_masks",
    "look_ahead_mask",
    "make_dataset",
    "multi_worker_strategy",
    "padding_mask",
    "plot_attention",
    "plot_history",
    "plot_mask",
    "plot_positional_encoding",
    "plot_schedule",
    "plot_transformer",
    "position_rotation",
    "positional_encoding",
    "sample",
    "scaled_dot_product_attention",
    "transformer_optimizer",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_ON_FIRST_USE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
