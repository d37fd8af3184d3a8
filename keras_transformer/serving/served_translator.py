"""What goes into the SavedModel: weights, tokenizers, and a function for each signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.serving.text_to_text import decoder_input
from keras_transformer.text.vocabulary import PAD_TOKEN_ID

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

PIECE_SEPARATOR = " "  # SentencePiece's own: a piece has "▁" where the text has white space


class ServedTranslator(tf.Module):
    """Four signatures. Every input and output is led by the batch B, and no output's width depends on it.

    - `serving_default`: `text` -> `translation`, `score`, `truncated`.
    - `nbest`: `text` -> `translation` and `score`, `(B, n)`, and `truncated`.
    - `score`: `text`, `translation` -> `log_probability`, `num_tokens`, `truncated`.
    - `attention`: `text` -> `translation`, `source_pieces`, `target_pieces`, `attention`, `truncated`.

    Args:
        translator: A `Translator`.
        num_hypotheses: n.
    """

    def __init__(self, translator: Translator, num_hypotheses: int) -> None:
        super().__init__(name="translator")
        # TensorFlow's variables, not Keras' around them: of those, copies would be saved and restored, and the
        # function's own variables stay empty in a C++ server.
        self.weights = [weight.value for weight in translator.model.weights]
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer

        def serving_default(text: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = translator.translate_batch(text)
            best = {name: outputs[name][:, 0] for name in ("translation", "score")}
            return {**best, "truncated": outputs["truncated"]}

        def nbest(text: tf.Tensor) -> dict[str, tf.Tensor]:
            return translator.translate_batch(text, num_hypotheses)

        def score(text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
            tf.debugging.assert_equal(
                tf.shape(text), tf.shape(translation), "`text` and `translation` must be as many."
            )
            log_probability, num_tokens, *cut = translator.score_batch(text, translation)
            return {"log_probability": log_probability, "num_tokens": num_tokens, "truncated": cut[0] | cut[1]}

        def attention(text: tf.Tensor) -> dict[str, tf.Tensor]:
            return _attention(translator, text)

        self.functions = {
            each.__name__: tf.function(
                each,
                input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in names],
                autograph=False,
            )
            for each, names in (
                (serving_default, ["text"]),
                (nbest, ["text"]),
                (score, ["text", "translation"]),
                (attention, ["text"]),
            )
        }


def _attention(translator: Translator, texts: tf.Tensor) -> dict[str, tf.Tensor]:
    """The best translations, and where every head of every layer looked in the source; a long text is cut."""
    source_ids, truncated = translator.source_ids(texts)
    target_ids = translator.search(source_ids)[0][:, 0]  # (B, L)

    def of_one(ids: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        source, target = (tf.boolean_mask(each, each != PAD_TOKEN_ID)[None] for each in ids)
        inputs = {"encoder_token_ids": source, "decoder_token_ids": decoder_input(target)}
        _, scores = translator.model(inputs, training=False, return_attention_scores=True)
        return _json(tf.concat(scores["cross"], axis=0))  # (layers, N, T, S)

    # One after the other: of a batch of long sentences the weights as text would be gigabytes.
    attention = tf.map_fn(
        of_one, (source_ids, target_ids), fn_output_signature=tf.TensorSpec([], tf.string), parallel_iterations=1
    )
    return {
        "translation": translator.target_tokenizer.detokenize(target_ids),
        "source_pieces": _pieces(translator.source_tokenizer.id_to_string(source_ids), source_ids),
        "target_pieces": _pieces(translator.target_tokenizer.id_to_string(target_ids), target_ids),
        "attention": attention,
        "truncated": truncated,
    }


def _pieces(pieces: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """`(B, L)` strings -> `(B,)`, without those of padding."""
    return tf.strings.reduce_join(
        tf.ragged.boolean_mask(pieces, ids != PAD_TOKEN_ID), axis=1, separator=PIECE_SEPARATOR
    )


def _json(numbers: tf.Tensor) -> tf.Tensor:
    """Numbers of any rank -> a string: lists in lists."""
    items = tf.strings.as_string(numbers, precision=4)
    for _ in numbers.shape:
        items = tf.strings.join(["[", tf.strings.reduce_join(items, axis=-1, separator=","), "]"])
    return items
