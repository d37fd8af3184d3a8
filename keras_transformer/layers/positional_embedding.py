"""Token embedding plus position: what the encoder and the decoder read."""

from typing import Any

import keras
from keras import backend, ops

from keras_transformer.layers.arguments import check_positive, check_probability, clone_initializer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.positional_encoding import encode_positions

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """dropout(embedding(token) * sqrt(d_model) + PE(position)), and the same matrix as the output projection.

    Args:
        vocabulary_size: Number of token ids V.
        d_model: Width D, even.
        dropout: Probability of dropping an element of the sum.
        mask_zero: Whether the output carries an implicit Keras mask of the tokens that are not 0, for layers that are
            composed by hand. `Transformer` passes masks explicitly and sets it to `False`.
        embeddings_initializer: Normal with standard deviation d_model^-0.5 if not given, so that the scaled embedding
            has the positions' order of size.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        token_ids: `(B, T)`, integer, 0 <= id < V.
        start_index: Position of the first token, an integer or a scalar integer tensor: 0 for a whole sequence, the
            step's index in decoding.
        training: Whether dropout is on.

    Returns:
        `(B, T, D)`, in the compute dtype. The sum is made in float32 or better.

    Raises:
        ValueError: If an argument has an impossible value, `token_ids` is not of rank 2, or `start_index` negative.

    Example:
        >>> embedding = PositionalEmbedding(vocabulary_size=10, d_model=16)
        >>> sequence = embedding(np.array([[5, 7, 9]]))  # (1, 3, 16)
        >>> logits = embedding.project(sequence)  # (1, 3, 10)

    Reference:
        Vaswani et al. (2017), sections 3.4 (embeddings and softmax), 3.5 (positions) and 5.4 (dropout).
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        dropout: float = 0.0,
        mask_zero: bool = True,
        embeddings_initializer: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = check_positive("vocabulary_size", vocabulary_size)
        self.d_model = check_positive("d_model", d_model)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even: sine and cosine take turns. Received: d_model={d_model}")
        self.dropout = check_probability("dropout", dropout)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.embeddings_initializer = clone_initializer(keras.initializers.get(embeddings_initializer))
        self.seed = seed
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def build(self, token_ids_shape: tuple | None = None) -> None:
        # No autocast: the sum with the positions and the projection to logits are made in full precision.
        self.embeddings = self.add_weight(
            shape=(self.vocabulary_size, self.d_model),
            initializer=self.embeddings_initializer,
            name="embeddings",
            autocast=False,
        )

    def call(self, token_ids: Tensor, start_index: int | Tensor = 0, training: bool | None = None) -> Tensor:
        if len(token_ids.shape) != 2:
            raise ValueError(f"`token_ids` must have rank 2, (B, T). Received: shape={tuple(token_ids.shape)}")
        embedded = ops.take(self.embeddings, ops.cast(token_ids, "int32"), axis=0)  # (B, T) -> (B, T, D)
        embedded = ops.cast(embedded, backend.result_type(self.compute_dtype, "float32"))
        length = token_ids.shape[1] if token_ids.shape[1] is not None else ops.shape(token_ids)[1]
        positions = ops.cast(encode_positions(start_index, length, self.d_model), embedded.dtype)  # (T, D)
        embedded = embedded * self.d_model**0.5 + positions
        return self.dropout_layer(ops.cast(embedded, self.compute_dtype), training=training)

    def project(self, sequence: Tensor) -> Tensor:
        """Logits over the vocabulary, through the transposed embedding matrix: the tied output projection.

        Args:
            sequence: `(B, T, D)`.

        Returns:
            `(B, T, V)`, float32 or better.
        """
        precise = backend.result_type(self.compute_dtype, "float32")
        embeddings = ops.cast(ops.convert_to_tensor(self.embeddings), precise)
        return ops.matmul(ops.cast(sequence, precise), ops.transpose(embeddings))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return ops.not_equal(inputs, 0) if self.mask_zero else previous_mask

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "d_model": self.d_model,
            "dropout": self.dropout,
            "mask_zero": self.mask_zero,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "seed": self.seed,
        }
