"""The Transformer: embeddings, encoder, decoder, logits."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.arguments import check_positive, derive_seed, head_size
from keras_transformer.layers.masks import padding_mask
from keras_transformer.layers.positional_embedding import PositionalEmbedding
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.distributed_model import DistributedModel
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.presets import preset

Tensor = Any

_COUNTS = ("source_vocabulary_size", "target_vocabulary_size", "num_encoder_layers", "num_decoder_layers", "num_heads")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(DistributedModel):
    """The encoder-decoder Transformer of "Attention Is All You Need".

    The defaults are the paper's base model; biases in the attention projections are Keras' and not in the paper.

    Args:
        source_vocabulary_size: Number of source token ids.
        target_vocabulary_size: Number of target token ids; the source's if not given.
        num_encoder_layers, num_decoder_layers: Depth (the paper's N).
        d_model: Width, even.
        num_heads: Attention heads (the paper's h).
        d_ff: Width of the feed-forward networks' hidden layers.
        key_dim, value_dim: Size of each head's queries and keys, and of its values; `d_model / num_heads` if not given.
        dropout: Probability of dropping, on the sums of embedding and position and on every sublayer's output.
        attention_dropout: Probability of dropping an attention weight. 0 in the paper.
        activation: Activation of the feed-forward networks.
        normalize_first: `False` for post-norm (the paper), `True` for pre-norm.
        layer_norm_epsilon: Added to the variance in layer normalization.
        share_embeddings: Whether source, target and output projection are one matrix, as in the paper. Needs one
            vocabulary. `False` still ties the target's embedding and the output projection.
        pad_token_id: The id that fills up a row.
        seed: Seed of the dropouts (the weights' is `keras.utils.set_random_seed`).
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `{"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}`, integer.
        training: Whether dropout is on.
        return_attention_scores: Whether to return the weights too.

    Returns:
        Logits, `(B, T, V)`, float32 or better: row t predicts the token after `decoder_token_ids[:, t]`. With scores a
        pair with `{"encoder": [...], "decoder": [...], "cross": [...]}`, one `(B, N, T|S, T|S)` per layer.

    Raises:
        ValueError: If an argument has an impossible value.

    Masking:
        Made from the ids: source padding is hidden from the encoder and from the cross-attention, the future and
        target padding from the decoder.

    Example:
        >>> model = Transformer.from_preset("tiny", source_vocabulary_size=100)
        >>> source, target = np.array([[5, 6, 3]]), np.array([[2, 7]])
        >>> logits = model({"encoder_token_ids": source, "decoder_token_ids": target})

    Reference:
        Vaswani et al. (2017), "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3 and table 3.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int | None = None,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: str = "relu",
        normalize_first: bool = False,
        layer_norm_epsilon: float = 1e-6,
        share_embeddings: bool = True,
        pad_token_id: int = 0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        target_vocabulary_size = source_vocabulary_size if target_vocabulary_size is None else target_vocabulary_size
        if share_embeddings and source_vocabulary_size != target_vocabulary_size:
            raise ValueError(
                "`share_embeddings=True` needs one vocabulary for both sides: give one size, or "
                f"`share_embeddings=False`. Received: source_vocabulary_size={source_vocabulary_size}, "
                f"target_vocabulary_size={target_vocabulary_size}"
            )
        self.config: dict[str, Any] = {
            "source_vocabulary_size": source_vocabulary_size,
            "target_vocabulary_size": target_vocabulary_size,
            "num_encoder_layers": num_encoder_layers,
            "num_decoder_layers": num_decoder_layers,
            "d_model": d_model,
            "num_heads": num_heads,
            "d_ff": d_ff,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": keras.activations.serialize(keras.activations.get(activation)),
            "normalize_first": normalize_first,
            "layer_norm_epsilon": layer_norm_epsilon,
            "share_embeddings": share_embeddings,
            "pad_token_id": pad_token_id,
            "seed": seed,
        }
        for name in _COUNTS:
            self.config[name] = check_positive(name, self.config[name])
        if isinstance(pad_token_id, bool) or not isinstance(pad_token_id, int) or pad_token_id < 0:
            raise ValueError(f"`pad_token_id` must be an integer, 0 or more. Received: pad_token_id={pad_token_id!r}")
        self.pad_token_id = pad_token_id
        self.source_embedding = self._embedding(source_vocabulary_size, "source_embedding")
        self.target_embedding = (
            self.source_embedding if share_embeddings else self._embedding(target_vocabulary_size, "target_embedding")
        )
        layer_options = {
            "num_heads": num_heads,
            "d_ff": d_ff,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": activation,
            "normalize_first": normalize_first,
            "layer_norm_epsilon": layer_norm_epsilon,
            "key_dim": head_size(key_dim, d_model, num_heads),
            "value_dim": head_size(value_dim, d_model, num_heads),
            "dtype": self.dtype_policy,
        }
        self.encoder = Encoder(num_encoder_layers, seed=derive_seed(seed, "encoder"), name="encoder", **layer_options)
        self.decoder = Decoder(num_decoder_layers, seed=derive_seed(seed, "decoder"), name="decoder", **layer_options)

    def _embedding(self, vocabulary_size: int, name: str) -> PositionalEmbedding:
        return PositionalEmbedding(
            vocabulary_size,
            self.config["d_model"],
            dropout=self.config["dropout"],
            mask_zero=False,
            seed=derive_seed(self.config["seed"], name),
            dtype=self.dtype_policy,
            name=name,
        )

    @classmethod
    def from_preset(cls, preset_name: str, /, source_vocabulary_size: int, **overrides: Any) -> "Transformer":
        """A model of a named size ("tiny", "small", "base", "big") with random weights.

        Args:
            preset_name: The preset's name.
            source_vocabulary_size: Number of source token ids.
            **overrides: Constructor arguments that differ from the preset's.

        Raises:
            ValueError: If there is no such preset.
        """
        return cls(source_vocabulary_size, **{**preset(preset_name), **overrides})

    def build(self, input_shape: dict[str, tuple] | None = None) -> None:
        """Makes every weight; no weight's shape depends on the input's."""
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))
        sequence_shape = (None, None, self.config["d_model"])
        self.encoder.build(sequence_shape)
        self.decoder.build(sequence_shape, sequence_shape)

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None, return_attention_scores: bool = False
    ) -> Any:
        encoder_token_ids, decoder_token_ids = _token_ids(inputs)
        encoder_padding_mask = padding_mask(encoder_token_ids, self.pad_token_id)
        encoder_sequence, encoder_scores = self.encoder(
            self.source_embedding(encoder_token_ids, training=training),
            encoder_padding_mask=encoder_padding_mask,
            training=training,
            return_attention_scores=True,
        )
        decoder_sequence, decoder_scores, cross_scores = self.decoder(
            self.target_embedding(decoder_token_ids, training=training),
            encoder_sequence,
            decoder_padding_mask=padding_mask(decoder_token_ids, self.pad_token_id),
            encoder_padding_mask=encoder_padding_mask,
            training=training,
            return_attention_scores=True,
        )
        logits = self.target_embedding.project(decoder_sequence)
        scores = {"encoder": encoder_scores, "decoder": decoder_scores, "cross": cross_scores}
        return (logits, scores) if return_attention_scores else logits

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, loss_weights: Any = None, **kwargs: Any) -> None:
        """As `DistributedModel.compile`; refuses a name or function that would take the logits for probabilities."""
        if loss in ("sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy):
            raise ValueError(
                f"The model gives logits, and {loss!r} takes probabilities: use `SmoothedCrossentropy(0.0)` or "
                "`keras.losses.SparseCategoricalCrossentropy(from_logits=True)`."
            )
        super().compile(optimizer=optimizer, loss=loss, loss_weights=loss_weights, **kwargs)

    def encode(self, encoder_token_ids: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor]:
        """Reads the source once.

        Args:
            encoder_token_ids: `(B, S)`, integer.
            training: Whether dropout is on.

        Returns:
            The encoder's output, `(B, S, D)`, and the padding mask that goes with it, `(B, 1, S)`, bool.
        """
        if not self.built:
            self.build()
        encoder_token_ids = ops.convert_to_tensor(encoder_token_ids)
        encoder_padding_mask = padding_mask(encoder_token_ids, self.pad_token_id)
        embedded = self.source_embedding(encoder_token_ids, training=training)
        return self.encoder(embedded, encoder_padding_mask, training=training), encoder_padding_mask

    def decode(
        self,
        decoder_token_ids: Tensor,
        encoder_sequence: Tensor,
        encoder_padding_mask: Tensor,
        training: bool | None = None,
    ) -> Tensor:
        """Logits of every target position, from what `encode` returned.

        Args:
            decoder_token_ids: `(B, T)`, integer, led by the start token.
            encoder_sequence: `(B, S, D)`.
            encoder_padding_mask: `(B, 1, S)`, bool.
            training: Whether dropout is on.

        Returns:
            `(B, T, V)`, float32 or better.
        """
        decoder_token_ids = ops.convert_to_tensor(decoder_token_ids)
        decoder_sequence = self.decoder(
            self.target_embedding(decoder_token_ids, training=training),
            encoder_sequence,
            decoder_padding_mask=padding_mask(decoder_token_ids, self.pad_token_id),
            encoder_padding_mask=encoder_padding_mask,
            training=training,
        )
        return self.target_embedding.project(decoder_sequence)

    def init_state(self, encoder_sequence: Tensor, encoder_padding_mask: Tensor, max_length: int) -> dict[str, Any]:
        """What `step` needs: caches of size `max_length`, cross-attention keys and values, and the source's mask.

        Returns:
            A structure of tensors, each led by the batch.
        """
        return {
            "cache": self.decoder.init_cache(encoder_sequence, max_length),
            "encoder_padding_mask": encoder_padding_mask,
        }

    def step(self, token_ids: Tensor, index: int | Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """One step of decoding: the logits that `decode` would give at position `index`.

        Args:
            token_ids: `(B,)`, integer, the token at position `index`: the start token at 0.
            index: Scalar integer.
            state: From `init_state` or the step before.

        Returns:
            Logits of the next token, `(B, V)`, float32 or better, and the state of the next step.
        """
        embedded = self.target_embedding(ops.expand_dims(token_ids, 1), start_index=index)  # (B,) -> (B, 1, D)
        decoder_sequence, cache = self.decoder(
            embedded,
            encoder_padding_mask=state["encoder_padding_mask"],
            training=False,
            cache=state["cache"],
            cache_index=index,
        )
        logits = self.target_embedding.project(decoder_sequence)  # (B, 1, V)
        return ops.squeeze(logits, 1), {**state, "cache": cache}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.config}


def _token_ids(inputs: Any) -> tuple[Tensor, Tensor]:
    try:
        return inputs["encoder_token_ids"], inputs["decoder_token_ids"]
    except (KeyError, TypeError, IndexError) as error:
        received = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        raise ValueError(
            f"Expected a dict with `encoder_token_ids` and `decoder_token_ids`. Received: {received}"
        ) from error
