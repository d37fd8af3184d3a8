"""The translator: a model and its tokenizers, from text to text."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.layers.arguments import check_positive
from keras_transformer.models.transformer import Transformer
from keras_transformer.serving.export import export_translator
from keras_transformer.serving.files import new_directory
from keras_transformer.serving.text_to_text import TextToText
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.visualization.attention_maps import AttentionMaps


class Hypothesis(NamedTuple):
    """One translation of one sentence.

    `score` is the log-probability over the length penalty, `truncated` whether the source was cut to the longest
    length.
    """

    text: str
    score: float
    truncated: bool


class Translator(TextToText):
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
        >>> tokenizer = Tokenizer.train(["um gato dorme", "a cat sleeps"] * 10, vocabulary_size=275)
        >>> model = Transformer.from_preset("tiny", source_vocabulary_size=275)  # learns first, where it is meant
        >>> translations = Translator(model, tokenizer)(["um gato", "um gato dorme"])

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
        super().__init__(model, source_tokenizer, target_tokenizer, num_beams, length_penalty, max_length)
        self._functions: dict[tuple, Any] = {}

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
            ValueError: If the sides differ in number, or a source is longer than `max_length`.
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
        scores, lengths, truncated = zip(*batches, strict=True)
        for index in np.flatnonzero(np.concatenate(truncated)):
            raise ValueError(
                f"`sources[{index}]` is longer than max_length={self.max_length} tokens and would be scored as another "
                f"sentence: make a translator with a larger `max_length`. Received: {sources[index][:80]!r}"
            )
        return np.concatenate(scores), np.concatenate(lengths)

    def attention(self, source: str, target: str | None = None) -> AttentionMaps:
        """Where every head of every layer looked while it read `source` and wrote `target`.

        Args:
            source: A sentence. What is longer than `max_length` is cut.
            target: Its translation; the translator's own, tokenized anew, if not given.

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

    def _translate_function(self, num_hypotheses: int) -> Any:
        """One trace for every number and length of sentences."""
        settings = (num_hypotheses, self.num_beams, self.length_penalty, self.max_length)
        if settings not in self._functions:
            self._functions[settings] = tf.function(
                lambda texts: self.translate_batch(texts, num_hypotheses),
                input_signature=[tf.TensorSpec([None], tf.string, name="text")],
                autograph=False,
            )
        return self._functions[settings]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes model, tokenizers and settings.

        A reader sees the old directory or the whole new one; for an instant between two renames there is none, and a
        kill just then leaves the old one as `.NAME.old-PID`.

        Args:
            directory: Where to; a translator that is there already is replaced.
        """
        directory = Path(directory).resolve()
        if directory.exists() and not (directory / "translator.json").is_file():
            raise ValueError(f"{directory} exists and is no saved translator: give another directory.")
        with new_directory(directory, replace=True) as temporary:
            self.model.save(temporary / "model.keras")
            self.source_tokenizer.save(temporary / "source.spm")
            if self.target_tokenizer is not self.source_tokenizer:
                self.target_tokenizer.save(temporary / "target.spm")
            settings = {name: getattr(self, name) for name in ("num_beams", "length_penalty", "max_length")}
            tokenizers = [self.source_tokenizer.fingerprint, self.target_tokenizer.fingerprint]
            description = json.dumps({"settings": settings, "tokenizers": tokenizers}, indent=2)
            (temporary / "translator.json").write_text(description + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Translator:
        """Reads what `save` wrote.

        Args:
            directory: The translator's directory.

        Raises:
            FileNotFoundError: If there is no saved translator, or one of its files is missing.
            ValueError: If a file is damaged, or not the one that was saved.
        """
        directory = Path(directory)
        if not (directory / "translator.json").is_file():
            raise FileNotFoundError(f"{directory}: no saved translator (translator.json is missing).")
        try:
            saved = json.loads((directory / "translator.json").read_text(encoding="utf-8"))
            settings, fingerprints = saved["settings"], saved["tokenizers"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{directory / 'translator.json'} is damaged: save the translator again.") from error
        source = Tokenizer.load(directory / "source.spm")
        target = source if fingerprints[0] == fingerprints[1] else Tokenizer.load(directory / "target.spm")
        if [source.fingerprint, target.fingerprint] != fingerprints:
            raise ValueError(f"{directory}: the tokenizers are not those that were saved: save the translator again.")
        try:
            model = keras.models.load_model(directory / "model.keras")
        except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"{directory / 'model.keras'} is missing or damaged: {error}") from error
        return cls(model, source, target, **settings)

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
