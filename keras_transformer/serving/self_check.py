"""An export must translate as its translator does, in a process that knows TensorFlow and TF-Text alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.decoding.next_token import IMPOSSIBLE
from keras_transformer.text.vocabulary import PAD_TOKEN_ID

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

_SENTENCES = 50
# Both sides search the same sentences at once and in the same order, by length as the translator does: in half
# precision a score's last digits depend on the shape of the batch and on the place in it.
_AT_ONCE = 8
# Every export must do these: nothing, accents, other scripts, an emoji, two lines, a text longer than the limit.
_ODD = ("", "São João 日本 😀", "a\nb", "x" * 4000)
_FRESH_PROCESS = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf, tensorflow_text
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = []
for texts in json.load(sys.stdin):
    outputs = translate(text=tf.constant(texts))
    translations = [text.decode() for text in outputs["translation"].numpy()]
    answers += zip(translations, outputs["score"].numpy().tolist())
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(answers, file)
"""


def check_export(translator: Translator, path: Path, sentences: Sequence[str]) -> None:
    """Compares 50 sentences: odd ones, the caller's, and others of pieces from the vocabulary.

    Raises:
        RuntimeError: If the export gives another text or score than the translator, or does not run.
    """
    texts = [*_ODD, *sentences]
    texts += _of_pieces(translator, max(0, _SENTENCES - len(texts)))
    lengths = np.count_nonzero(translator.source_ids(tf.constant(texts))[0] != PAD_TOKEN_ID, axis=1)
    texts = [texts[index] for index in np.argsort(lengths, kind="stable")]
    batches = [texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE)]
    # As a plain graph, whatever the given one compiles; and on the CPU, where the fresh process runs too, since a GPU's
    # memory is this one's.
    plain = type(translator)(
        translator.model, translator.source_tokenizer, translator.target_tokenizer, **translator.settings
    )
    with tf.device("CPU"):
        expected = [best for batch in batches for best, *_ in plain.translate(batch)]
    for text, hypothesis in zip(texts, expected, strict=True):
        if not hypothesis.score > IMPOSSIBLE / 2:
            raise RuntimeError(f"The model finds no sentence for {text[:80]!r}: are its weights numbers?")
    answer = path / ".self_check.json"
    process = subprocess.run(
        [sys.executable, "-c", _FRESH_PROCESS, str(path), str(answer)],
        input=json.dumps(batches),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"The export does not run in a fresh process: {process.stderr.strip()[-2000:]}")
    answers = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    for text, hypothesis, (translation, score) in zip(texts, expected, answers, strict=True):
        if translation != hypothesis.text or not np.isclose(score, hypothesis.score, rtol=1e-4, atol=1e-4):
            raise RuntimeError(
                f"The export translates {text[:80]!r} otherwise than the translator: "
                f"{translation!r} ({score}) instead of {hypothesis.text!r} ({hypothesis.score})."
            )


def _of_pieces(translator: Translator, number: int) -> list[str]:
    """Sentences of 1 to 20 pieces, the same for every export of a vocabulary."""
    rng = np.random.default_rng(0)
    tokenizer = translator.source_tokenizer
    rows = [rng.integers(4, tokenizer.vocabulary_size, rng.integers(1, 21)).tolist() for _ in range(number)]
    return [text.decode() for text in tokenizer.detokenize(rows).numpy()] if rows else []
