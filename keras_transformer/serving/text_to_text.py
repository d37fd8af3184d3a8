"""From text to text inside the graph: the same lines serve Python and the export."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.layers.arguments import check_positive
from keras_transformer.models.transformer import Transformer
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import END_TOKEN_ID, PAD_TOKEN_ID
from keras_transformer.training.losses import label_log_likelihood


class TextToText:
    """A model, its tokenizers and the settings of the search; the arguments are those of `Translator`."""

    def __init__(
        self,
        model: Transformer,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        max_length: int = 256,
    ) -> None:
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
        self.num_beams = check_positive("num_beams", num_beams)
        self.length_penalty = check_length_penalty(length_penalty)
        self.max_length = check_positive("max_length", max_length)
        for side, tokenizer in (("source", self.source_tokenizer), ("target", self.target_tokenizer)):
            expected = model.get_config()[f"{side}_vocabulary_size"]
            if tokenizer.vocabulary_size != expected:
                raise ValueError(
                    f"`{side}_tokenizer` must have the model's vocabulary of {expected}. "
                    f"Received: vocabulary_size={tokenizer.vocabulary_size}"
                )
        if model.pad_token_id != PAD_TOKEN_ID:
            raise ValueError(
                f"The model must pad with {PAD_TOKEN_ID}, as `Tokenizer` does. "
                f"Received: pad_token_id={model.pad_token_id}"
            )
        if not model.built:
            model.build()

    def source_ids(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Text to encoder input: `(B,)` -> ids `(B, S)`, int32, each row ended by the end token, and `truncated`."""
        ids = self.source_tokenizer.tokenize(texts)
        truncated = ids.row_lengths() > self.max_length - 1
        ids = ids[:, : self.max_length - 1]
        ends = tf.fill([ids.nrows(), 1], END_TOKEN_ID)
        return tf.concat([ids, ends], axis=1).to_tensor(), truncated

    def translate_batch(self, texts: tf.Tensor, num_hypotheses: int = 1) -> dict[str, tf.Tensor]:
        """`(B,)` strings -> translation and score, `(B, n)`, and truncated, `(B,)`; an empty sentence stays empty."""
        encoder_token_ids, truncated = self.source_ids(texts)
        lengths = tf.reduce_sum(tf.cast(encoder_token_ids != PAD_TOKEN_ID, tf.int32), axis=1)
        # An empty sentence, its end token alone, is ended at once. Else 50 tokens more than the source (section 6.1).
        max_lengths = tf.where(lengths == 1, 1, lengths + 50)
        encoder_sequence, encoder_padding_mask = self.model.encode(encoder_token_ids, training=False)
        max_length = tf.shape(encoder_token_ids)[1] + 50
        ids, scores = beam_search(
            self.model.step,
            self.model.init_state(encoder_sequence, encoder_padding_mask, max_length),
            max_lengths,
            max_length,
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            num_hypotheses=num_hypotheses,
        )
        flat = self.target_tokenizer.detokenize(tf.reshape(ids, [-1, max_length]))
        return {"translation": tf.reshape(flat, [-1, num_hypotheses]), "score": scores, "truncated": truncated}

    def score_batch(self, sources: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`(B,)` strings twice -> log-probabilities, numbers of target tokens, and truncated, each `(B,)`."""
        encoder_token_ids, truncated = self.source_ids(sources)
        ids = self.target_tokenizer.tokenize(targets, add_start=True, add_end=True).to_tensor()
        inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": ids[:, :-1]}
        log_likelihood, _, _ = label_log_likelihood(ids[:, 1:], self.model(inputs, training=False))
        real = ids[:, 1:] != PAD_TOKEN_ID
        return (
            tf.reduce_sum(tf.where(real, log_likelihood, 0.0), axis=1),
            tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            truncated,
        )
