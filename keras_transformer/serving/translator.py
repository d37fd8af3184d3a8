"""The translator: a model and its tokenizers, from text to text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.layers.arguments import check_positive
from keras_transformer.models.transformer import Transformer
from keras_transformer.serving.batches import SearchInBatches, check_texts
from keras_transformer.serving.export import export_translator
from keras_transformer.serving.hypothesis import Hypothesis
from keras_transformer.serving.saving import load_translator, save_translator
from keras_transformer.serving.text_to_text import TextToText, decoder_input
from keras_transformer.serving.translate_file import translate_file
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.visualization.attention_maps import AttentionMaps


class Translator(TextToText):
    """Translates text with a trained `Transformer`.

    What a sentence gets is a function of that sentence: alone, in a batch, in whatever order.

    Args:
        model: A `Transformer`.
        source_tokenizer: The tokenizer of the source side.
        target_tokenizer: The tokenizer of the target side; the source's if not given.
        num_beams: Live hypotheses in the search; 1 is greedy.
        length_penalty: alpha of the length penalty; 0.6 in the paper.
        max_length: The longest source in tokens, its end included. A longer text is translated sentence by sentence
            and joined again with its white space; a sentence that is longer still is cut, and said to be.
        min_target_length: The shortest translation in tokens, its end included.
        max_target_length: The longest translation in tokens, its end included; 50 more than its source if not given,
            as in the paper.
        coverage_penalty: beta of the coverage penalty of Wu et al. (2016); 0 for none.
        no_repeat_ngram_size: n for which no n tokens come twice in a translation; 0 for no such rule.
        jit_compile: Whether XLA compiles the search: faster, after some seconds of compiling for each of a few shapes.
            An export never needs XLA.

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
        min_target_length: int = 1,
        max_target_length: int | None = None,
        coverage_penalty: float = 0.0,
        no_repeat_ngram_size: int = 0,
        jit_compile: bool = False,
    ) -> None:
        super().__init__(
            model,
            source_tokenizer,
            target_tokenizer,
            num_beams=num_beams,
            length_penalty=length_penalty,
            max_length=max_length,
            min_target_length=min_target_length,
            max_target_length=max_target_length,
            coverage_penalty=coverage_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
        )
        self.jit_compile = jit_compile
        self._in_batches = SearchInBatches(self)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """The best translation of every text, in the order given."""
        return [hypotheses[0].text for hypotheses in self.translate(texts)]

    def translate(
        self,
        texts: Sequence[str],
        num_hypotheses: int = 1,
        batch_size: int = 32,
        prefixes: Sequence[str] | None = None,
    ) -> list[list[Hypothesis]]:
        """The n best translations of every text, with their scores.

        Args:
            texts: Any number of texts. Their sentences are batched by length and handed back in the order given.
            num_hypotheses: n, at most `num_beams`.
            batch_size: Sentences of a batch; on CPUs batches are searched side by side, one a core and at most 8.
            prefixes: As many beginnings of translations, "" where there is none: the search goes on after their tokens.

        Returns:
            For every text n hypotheses, best first.

        Raises:
            TypeError: If `texts` is a single string.
            ValueError: If an argument has an impossible value.
        """
        texts = check_texts("texts", texts)
        check_positive("num_hypotheses", num_hypotheses)

        def search(ids: tf.Tensor, prefix_ids: tf.Tensor | None = None, **options: Any) -> tuple[tf.Tensor, tf.Tensor]:
            return self.search(ids, num_hypotheses, prefix_ids=prefix_ids, **options)

        return self._translate(texts, ("search", num_hypotheses), search, batch_size, prefixes=prefixes)

    def sample(
        self,
        texts: Sequence[str],
        num_samples: int = 1,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 32,
    ) -> list[list[Hypothesis]]:
        """Translations that are drawn and not searched.

        Args:
            texts, batch_size: As in `translate`.
            num_samples: How many of every text.
            temperature, top_k, top_p: As in `sample`.
            seed: What a text gets is a function of the text, the seed and the sample's number.

        Returns:
            For every text `num_samples` hypotheses, in the order drawn.

        Raises:
            TypeError: If `texts` is a single string.
            ValueError: If an argument has an impossible value.
        """
        texts = check_texts("texts", texts)
        check_positive("num_samples", num_samples)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            raise ValueError(f"`seed` must be an integer, 0 or more and below 2^31. Received: seed={seed!r}")
        how = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

        def draw(ids: tf.Tensor, seed: tf.Tensor, **options: Any) -> tuple[tf.Tensor, tf.Tensor]:
            return self.draw(ids, num_samples, seed=seed, **how, **options)

        return self._translate(texts, ("sample", num_samples, *how.values()), draw, batch_size, seed=seed)

    def _translate(
        self,
        texts: list[str],
        key: tuple,
        search: Callable,
        batch_size: int,
        **others: Any,
    ) -> list[list[Hypothesis]]:
        check_positive("batch_size", batch_size)
        key = (*key, *self.settings.values(), self.jit_compile)
        rows = self._in_batches.run(texts, key, search, self.jit_compile, batch_size, **others)
        return [
            [Hypothesis(text.decode(), float(score), bool(truncated)) for text, score in zip(*row, strict=True)]
            for *row, truncated in rows
        ]

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
            ValueError: If the sides differ in number, a source is longer than `max_length`, or a target longer than any
                translation can be.
        """
        sources, targets = check_texts("sources", sources), check_texts("targets", targets)
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
        scores, lengths, *cut = (np.concatenate(each) for each in zip(*batches, strict=True))
        for name, texts, was_cut in zip(("sources", "targets"), (sources, targets), cut, strict=True):
            for index in np.flatnonzero(was_cut):
                raise ValueError(
                    f"`{name}[{index}]` is too long for max_length={self.max_length} and would be scored as another "
                    f"sentence: make a translator with a larger `max_length`. Received: {texts[index][:80]!r}"
                )
        return scores, lengths

    def attention(self, source: str, target: str | None = None) -> AttentionMaps:
        """Where every head of every layer looked while it read `source` and wrote `target`.

        Args:
            source: A sentence. What is longer than `max_length` is cut.
            target: Its translation, cut where no translation can be as long; the translator's own, tokenized anew, if
                not given.

        Returns:
            The pieces of both sides and the weights, as NumPy arrays.
        """
        encoder_token_ids, cut = self.source_ids(tf.constant([source]))
        if target is None:
            kept = self.source_tokenizer.detokenize(encoder_token_ids)[0].numpy().decode() if cut[0] else source
            target = self([kept])[0]
        labels, _ = self.target_ids(tf.constant([target]))
        read = decoder_input(labels)
        _, scores = self.model(
            {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": read},
            training=False,
            return_attention_scores=True,
        )
        return AttentionMaps(
            source_pieces=self.source_tokenizer.pieces(encoder_token_ids[0].numpy()),
            decoder_input_pieces=self.target_tokenizer.pieces(read[0].numpy()),
            target_pieces=self.target_tokenizer.pieces(labels[0].numpy()),
            # One (1, N, T, S) a layer -> (layers, N, T, S)
            **{kind: np.concatenate([np.asarray(layer) for layer in layers]) for kind, layers in scores.items()},
        )

    def translate_file(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        target: str | os.PathLike[str] | BinaryIO,
        **options: Any,
    ) -> int:
        """Translates a file line by line; see `translate_file`."""
        return translate_file(self, source, target, **options)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes model, tokenizers and settings.

        A reader sees the old directory or the whole new one; for an instant between two renames there is none, and a
        kill just then leaves the old one as `.NAME.old-PID`.

        Args:
            directory: Where to; a translator that is there already is replaced.
        """
        save_translator(self, Path(directory).resolve())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Translator:
        """Reads what `save` wrote.

        Args:
            directory: The translator's directory.

        Raises:
            FileNotFoundError: If there is no saved translator, or one of its files is missing.
            ValueError: If a file is damaged, or not the one that was saved.
        """
        model, source, target, settings = load_translator(Path(directory))
        return cls(model, source, target, **settings)

    def export(self, directory: str | os.PathLike[str], version: int | None = None, **options: Any) -> Path:
        """Writes the SavedModel that TensorFlow Serving loads; arguments and errors: see `export_translator`."""
        return export_translator(self, directory, version, **options)

    def astype(self, dtype: str) -> Translator:
        """A translator with the same weights in another dtype policy: "bfloat16" halves the weights' memory.

        Args:
            dtype: A Keras dtype policy. Logits, softmax and scores are at least float32 in each.

        Returns:
            A new translator with this one's settings; this one is left as it is.
        """
        model = Transformer.from_config({**self.model.get_config(), "dtype": dtype})
        model.build()
        model.set_weights([keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in self.model.weights])
        settings = {**self.settings, "jit_compile": self.jit_compile}
        return Translator(model, self.source_tokenizer, self.target_tokenizer, **settings)
