"""The translator: a model and its tokenizers, from text to text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.length_penalty import check_length_penalty
from keras_transformer.layers.arguments import check_positive
from keras_transformer.models.transformer import Transformer
from keras_transformer.serving.export import export_translator
from keras_transformer.serving.files import new_directory
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import END_TOKEN_ID
from keras_transformer.training.losses import label_log_likelihood
from keras_transformer.visualization.attention_maps import AttentionMaps


class Hypothesis(NamedTuple):
    """One translation of one sentence.

    `score` is the log-probability over the length penalty, `truncated` whether the source was cut to the longest
    length.
    """

    text: str
    score: float
    truncated: bool


class Translator:
    """Translates text with a trained `Transformer`.

    What a sentence gets is a function of that sentence: alone, in a batch, in whatever order.

    Args:
        model: A `Transformer`.
        source_tokenizer: The tokenizer of the source side.
        target_tokenizer: The tokenizer of the target side; the source's if not given.
        num_beams: Live hypotheses in the search; 1 is greedy.
        length_penalty: alpha of the length penalty; 0.6 in the paper.
        max_length: The longest source in tokens, its end included; what is longer is cut, and said to be.
            A translation may have 50 tokens more than its source, as in the paper.

    Raises:
        ValueError: If an argument has an impossible value, or a tokenizer's vocabulary is not the model's.

    Example:
        >>> translator = Translator(model, tokenizer)
        >>> translator(["Eu comprei um livro."])
        ['I bought a book.']

    Reference:
        Vaswani et al. (2017), section 6.1.
    """

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
        if not model.built:
            model.build()
        self._functions: dict[int, Any] = {}

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """The best translation of every sentence, in the order given.

        Args:
            texts: Any number of sentences.

        Returns:
            As many strings.
        """
        return [hypotheses[0].text for hypotheses in self.translate(texts)]

    def translate(self, texts: Sequence[str], num_hypotheses: int = 1, batch_size: int = 32) -> list[list[Hypothesis]]:
        """The n best translations of every sentence, with their scores.

        Args:
            texts: Any number of sentences. They are batched by length and handed back in the order given.
            num_hypotheses: n, at most `num_beams`.
            batch_size: Sentences searched at once.

        Returns:
            For every sentence n hypotheses, best first.

        Raises:
            TypeError: If `texts` is a single string.
            ValueError: If an argument has an impossible value.
        """
        texts = _check_texts("texts", texts)
        check_positive("num_hypotheses", num_hypotheses)
        check_positive("batch_size", batch_size)
        translate = self._translate_function(num_hypotheses)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        results: list[list[Hypothesis]] = [[] for _ in texts]
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            outputs = {name: value.numpy() for name, value in translate([texts[row] for row in rows]).items()}
            for position, row in enumerate(rows):
                results[row] = [
                    Hypothesis(text.decode(), float(score), bool(outputs["truncated"][position]))
                    for text, score in zip(outputs["translation"][position], outputs["score"][position], strict=True)
                ]
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 32) -> tuple[Any, Any]:
        """How likely the model finds given translations.

        Args:
            sources: Sentences.
            targets: As many translations.
            batch_size: Pairs scored at once.

        Returns:
            Log-probabilities, `(B,)`, float32, without length penalty, and numbers of target tokens, the end token
            included, `(B,)`, int32; NumPy arrays.

        Raises:
            TypeError: If a side is a single string.
            ValueError: If the sides differ in number.
        """
        sources, targets = _check_texts("sources", sources), _check_texts("targets", targets)
        check_positive("batch_size", batch_size)
        if len(sources) != len(targets):
            raise ValueError(
                f"`sources` and `targets` must be as many. Received: {len(sources)} sources, {len(targets)} targets"
            )
        batches = [
            self.score_batch(
                tf.constant(sources[start : start + batch_size]), tf.constant(targets[start : start + batch_size])
            )
            for start in range(0, len(sources), batch_size)
        ]
        if not batches:
            return np.zeros((0,), "float32"), np.zeros((0,), "int32")
        scores, lengths = zip(*batches, strict=True)
        return np.concatenate(scores), np.concatenate(lengths)

    def attention(self, source: str, target: str | None = None) -> AttentionMaps:
        """Where every head of every layer looked while it read `source` and wrote `target`.

        Args:
            source: A sentence.
            target: Its translation; the translator's own if not given.

        Returns:
            The pieces of both sides and the weights, as NumPy arrays.
        """
        if target is None:
            target = self([source])[0]
        encoder_token_ids, _ = self.source_ids(tf.constant([source]))
        target_ids = self.target_tokenizer.tokenize([target], add_start=True, add_end=True).to_tensor()
        _, scores = self.model(
            {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": target_ids[:, :-1]},
            training=False,
            return_attention_scores=True,
        )
        return AttentionMaps(
            source_pieces=self.source_tokenizer.pieces(encoder_token_ids[0].numpy()),
            decoder_input_pieces=self.target_tokenizer.pieces(target_ids[0, :-1].numpy()),
            target_pieces=self.target_tokenizer.pieces(target_ids[0, 1:].numpy()),
            # One (1, N, T, S) a layer -> (layers, N, T, S)
            **{kind: np.concatenate([np.asarray(layer) for layer in layers]) for kind, layers in scores.items()},
        )

    # In the graph: the same lines serve Python and the export.

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
        lengths = tf.reduce_sum(tf.cast(encoder_token_ids != 0, tf.int32), axis=1)
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

    def score_batch(self, sources: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(B,)` strings twice -> log-probabilities, `(B,)`, and numbers of target tokens, `(B,)`."""
        encoder_token_ids, _ = self.source_ids(sources)
        ids = self.target_tokenizer.tokenize(targets, add_start=True, add_end=True).to_tensor()
        inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": ids[:, :-1]}
        log_likelihood, _, _ = label_log_likelihood(ids[:, 1:], self.model(inputs, training=False))
        real = ids[:, 1:] != 0
        return (
            tf.reduce_sum(tf.where(real, log_likelihood, 0.0), axis=1),
            tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
        )

    def _translate_function(self, num_hypotheses: int) -> Any:
        """One trace for every number and length of sentences."""
        if num_hypotheses not in self._functions:
            self._functions[num_hypotheses] = tf.function(
                lambda texts: self.translate_batch(texts, num_hypotheses),
                input_signature=[tf.TensorSpec([None], tf.string, name="text")],
                autograph=False,
            )
        return self._functions[num_hypotheses]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes model, tokenizers and settings; a reader sees the old directory or the whole new one.

        Args:
            directory: Where to; a translator that is there already is replaced.
        """
        directory = Path(directory)
        if directory.exists() and not (directory / "translator.json").is_file():
            raise ValueError(f"{directory} exists and is no saved translator: give another directory.")
        with new_directory(directory, replace=True) as temporary:
            self.model.save(temporary / "model.keras")
            self.source_tokenizer.save(temporary / "source.spm")
            if self.target_tokenizer is not self.source_tokenizer:
                self.target_tokenizer.save(temporary / "target.spm")
            settings = {name: getattr(self, name) for name in ("num_beams", "length_penalty", "max_length")}
            (temporary / "translator.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Translator:
        """Reads what `save` wrote.

        Args:
            directory: The translator's directory.

        Raises:
            FileNotFoundError: If there is no saved translator.
        """
        directory = Path(directory)
        if not (directory / "translator.json").is_file():
            raise FileNotFoundError(f"{directory}: no saved translator (translator.json is missing).")
        settings = json.loads((directory / "translator.json").read_text(encoding="utf-8"))
        target = directory / "target.spm"
        return cls(
            keras.models.load_model(directory / "model.keras"),
            Tokenizer.load(directory / "source.spm"),
            Tokenizer.load(target) if target.is_file() else None,
            **settings,
        )

    def export(
        self, directory: str | os.PathLike[str], version: int | None = None, sentences: Sequence[str] = ()
    ) -> Path:
        """Writes the SavedModel that TensorFlow Serving loads. See `export_translator`."""
        return export_translator(self, directory, version, sentences)


def _check_texts(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"`{name}` must be a list of strings, not one string: [{texts!r}].")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"`{name}` must hold strings. Received: {text!r}")
    return texts
