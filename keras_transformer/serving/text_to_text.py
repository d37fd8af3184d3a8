"""From text to text inside the graph: the same lines serve Python and the export."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_transformer.decoding.coverage_penalty import check_coverage_penalty
from keras_transformer.decoding.generate import sample_ids, search_ids
from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.decoding.next_token import check_no_repeat_ngram_size
from keras_transformer.layers.arguments import check_positive
from keras_transformer.models.transformer import Transformer
from keras_transformer.serving.in_place import InPlaceCache
from keras_transformer.serving.long_text import Sentences, join_sentences, split_sentences
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import END_TOKEN_ID, PAD_TOKEN_ID, START_TOKEN_ID
from keras_transformer.training.losses import label_log_likelihood

LONGER_THAN_SOURCE = 50  # tokens that a translation may have more than its source (section 6.1 of the paper)
SENTENCES_AT_ONCE = 64  # in the graph, whatever the number and length of the texts: bounds the memory
SETTINGS = (
    *("num_beams", "length_penalty", "max_length", "min_target_length", "max_target_length"),
    *("coverage_penalty", "no_repeat_ngram_size"),
)


class Sources(NamedTuple):
    """What is searched for B texts: P sentences' tokens, and how the texts are made of them."""

    ids: tf.Tensor  # (P, S), int32
    sentences: Sentences
    truncated: tf.Tensor  # (B,), bool: whether something was cut


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
        min_target_length: int = 1,
        max_target_length: int | None = None,
        coverage_penalty: float = 0.0,
        no_repeat_ngram_size: int = 0,
    ) -> None:
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
        self.num_beams = check_positive("num_beams", num_beams)
        self.length_penalty = check_length_penalty(length_penalty)
        self.max_length = check_positive("max_length", max_length)
        self.min_target_length = check_positive("min_target_length", min_target_length)
        self.max_target_length = max_target_length
        if max_target_length is not None:
            check_positive("max_target_length", max_target_length)
            if min_target_length > max_target_length:
                raise ValueError(
                    "`min_target_length` must be at most `max_target_length`. "
                    f"Received: min_target_length={min_target_length}, max_target_length={max_target_length}"
                )
        self.coverage_penalty = check_coverage_penalty(coverage_penalty, num_beams)
        self.no_repeat_ngram_size = check_no_repeat_ngram_size(no_repeat_ngram_size)
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

    @property
    def settings(self) -> dict[str, Any]:
        """What is set of the search, by the names of the arguments."""
        return {name: getattr(self, name) for name in SETTINGS}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that a translation depends on: settings, tokenizers, the model and its weights."""
        tokenizers = [self.source_tokenizer.fingerprint, self.target_tokenizer.fingerprint]
        description = [self.settings, tokenizers, self.model.get_config()]
        digest = hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode())
        for weight in self.model.weights:
            digest.update(keras.ops.convert_to_numpy(weight).tobytes())
        return digest.hexdigest()

    def sources(self, texts: tf.Tensor) -> Sources:
        """`(B,)` strings to what is searched: a text that is too long by its sentences, another one as it is."""
        long = self.source_tokenizer.tokenize(texts).row_lengths() > self.max_length - 1
        sentences = split_sentences(texts, long)
        ids, cut = self.source_ids(sentences.texts)
        cut_texts = tf.math.unsorted_segment_max(tf.cast(cut, tf.int32), sentences.rows, tf.shape(texts)[0]) > 0
        return Sources(ids, sentences, cut_texts | sentences.truncated)

    def source_ids(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(B,)` strings to encoder input: ids `(B, S)`, int32, each row ended by the end token; and what was cut."""
        return _ended(self.source_tokenizer.tokenize(texts), self.max_length)

    def target_ids(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(B,)` strings to labels, `(B, T)`, as `source_ids`; cut where no translation can be as long."""
        most = max(self._longest(self.max_length), self.max_length + LONGER_THAN_SOURCE)
        return _ended(self.target_tokenizer.tokenize(texts), most)

    def target_limits(self, encoder_token_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, int | tf.Tensor]:
        """The longest and the shortest translation of every row, `(P,)`, int32, and the longest of all."""
        lengths = tf.reduce_sum(tf.cast(encoder_token_ids != PAD_TOKEN_ID, tf.int32), axis=1)
        # An empty sentence, its end token alone, is ended at once.
        longest = tf.where(lengths <= 1, 1, self._longest(lengths))
        length = encoder_token_ids.shape[1]  # known where XLA compiles, which wants the loop's shapes known too
        of_all = self._longest(tf.shape(encoder_token_ids)[1] if length is None else min(length, self.max_length))
        return longest, tf.minimum(self.min_target_length, longest), of_all

    def _longest(self, source_length: int | tf.Tensor) -> int | tf.Tensor:
        """The longest translation of a source of so many tokens."""
        if self.max_target_length is not None:
            return self.max_target_length
        maximum = max if isinstance(source_length, int) else tf.maximum
        return maximum(source_length + LONGER_THAN_SOURCE, self.min_target_length)

    def search(self, encoder_token_ids: tf.Tensor, num_hypotheses: int = 1, **options: Any) -> tuple[tf.Tensor, ...]:
        """`(P, S)` source ids -> target ids `(P, n, L)` and scores `(P, n)`."""
        beams = {"num_beams": self.num_beams, "coverage_penalty": self.coverage_penalty}
        options = {**self._limits(encoder_token_ids), **beams, **options}
        return search_ids(self.model, encoder_token_ids, num_hypotheses=num_hypotheses, **options)

    def draw(self, encoder_token_ids: tf.Tensor, num_samples: int = 1, **options: Any) -> tuple[tf.Tensor, ...]:
        """As `search`, with target ids that are drawn."""
        options = {**self._limits(encoder_token_ids), **options}
        return sample_ids(self.model, encoder_token_ids, num_samples=num_samples, **options)

    def _limits(self, encoder_token_ids: tf.Tensor) -> dict[str, Any]:
        """What searching and drawing have in common."""
        max_lengths, min_lengths, max_length = self.target_limits(encoder_token_ids)
        return {
            "max_lengths": max_lengths,
            "max_length": max_length,
            "min_lengths": min_lengths if self.min_target_length > 1 else None,
            "length_penalty": self.length_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "cache_class": InPlaceCache,
        }

    def target_texts(self, ids: tf.Tensor) -> tf.Tensor:
        """`(P, n, L)` target ids -> `(P, n)` strings."""
        flat = self.target_tokenizer.detokenize(tf.reshape(ids, [-1, tf.shape(ids)[2]]))
        return tf.reshape(flat, tf.shape(ids)[:2])

    def join(self, translations: tf.Tensor, scores: tf.Tensor, sources: Sources) -> dict[str, tf.Tensor]:
        """`(P, n)` translations and scores of the sentences -> those of the texts, `(B, n)`: scores are added."""
        number = tf.shape(sources.truncated)[0]
        # White space at the end of a long text has no sentence after it, and no part in the score.
        nothing = (sources.sentences.texts == "") & (sources.sentences.gaps != "")
        scores = tf.where(nothing[:, None], 0.0, scores)
        return {
            "translation": join_sentences(translations, sources.sentences),
            "score": tf.math.unsorted_segment_sum(scores, sources.sentences.rows, number),
            "truncated": sources.truncated,
        }

    def translate_batch(self, texts: tf.Tensor, num_hypotheses: int = 1) -> dict[str, tf.Tensor]:
        """`(B,)` strings -> translation and score, `(B, n)`, and truncated, `(B,)`; an empty sentence stays empty."""
        sources = self.sources(texts)
        number = tf.shape(sources.ids)[0]

        def some(start: tf.Tensor, translations: tf.Tensor, scores: tf.Tensor) -> tuple[tf.Tensor, ...]:
            ids = sources.ids[start : start + SENTENCES_AT_ONCE]
            used = tf.reduce_any(ids != PAD_TOKEN_ID, axis=0)
            target_ids, new_scores = self.search(tf.boolean_mask(ids, used, axis=1), num_hypotheses)
            new = tf.reshape(self.target_texts(target_ids), [-1, num_hypotheses])
            return (
                start + SENTENCES_AT_ONCE,
                tf.concat([translations, new], axis=0),
                tf.concat([scores, new_scores], axis=0),
            )

        _, translations, scores = tf.while_loop(
            lambda start, *_: start < number,
            some,
            (0, tf.zeros([0, num_hypotheses], tf.string), tf.zeros([0, num_hypotheses])),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None, num_hypotheses]),
                tf.TensorShape([None, num_hypotheses]),
            ),
        )
        return self.join(translations, scores, sources)

    def score_batch(self, sources: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """`(B,)` strings twice -> each `(B,)`: log-probabilities, numbers of target tokens, which side was cut."""
        encoder_token_ids, source_cut = self.source_ids(sources)
        labels, target_cut = self.target_ids(targets)
        inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": decoder_input(labels)}
        log_likelihood, _, _ = label_log_likelihood(labels, self.model(inputs, training=False))
        real = labels != PAD_TOKEN_ID
        return (
            tf.reduce_sum(tf.where(real, log_likelihood, 0.0), axis=1),
            tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            source_cut,
            target_cut,
        )


def decoder_input(labels: tf.Tensor) -> tf.Tensor:
    """`(B, T)` labels -> what the decoder reads to predict them: the start token, and all but the last."""
    starts = tf.fill([tf.shape(labels)[0], 1], START_TOKEN_ID)
    return tf.concat([starts, labels[:, :-1]], axis=1)


def _ended(ids: tf.RaggedTensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows of any length -> `(B, L)`, each ended by the end token, of `most` with it; and which were cut."""
    cut = ids.row_lengths() > most - 1
    ends = tf.fill([ids.nrows(), 1], END_TOKEN_ID)
    return tf.concat([ids[:, : most - 1], ends], axis=1).to_tensor(), cut
