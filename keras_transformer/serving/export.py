"""The SavedModel: text in, text out, in TensorFlow Serving and wherever TensorFlow runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.decoding.next_token import IMPOSSIBLE
from keras_transformer.serving.files import new_directory

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

# Every export must do these: nothing, accents, other scripts, an emoji, two lines, a text longer than the limit.
_SELF_CHECK = ("", "São João 日本 😀", "a\nb", "x" * 4000)


class ServedTranslator(tf.Module):
    """What goes into the SavedModel: weights, tokenizers and the function from text to text, and no Keras object."""

    def __init__(self, translator: Translator) -> None:
        super().__init__(name="translator")
        # TensorFlow's variables, not Keras' around them: of those, copies would be saved and restored, and the
        # function's own variables stay empty in a C++ server.
        self.weights = [weight.value for weight in translator.model.weights]
        self.source_tokenizer = translator.source_tokenizer
        self.target_tokenizer = translator.target_tokenizer

        def serving_default(text: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = translator.translate_batch(text)
            return {
                "translation": outputs["translation"][:, 0],
                "score": outputs["score"][:, 0],
                "truncated": outputs["truncated"],
            }

        self.serving_default = tf.function(
            serving_default, input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False
        )


def export_translator(
    translator: Translator,
    directory: str | os.PathLike[str],
    version: int | None = None,
    sentences: Sequence[str] = (),
) -> Path:
    """Writes `directory/version`, a SavedModel with the signature `serving_default`.

    Input `text`, string `(batch)`; outputs `translation`, string `(batch)`, `score`, float32 `(batch)`, and
    `truncated`, bool `(batch)`. It needs TensorFlow and TF-Text's SentencePiece ops, and not this package. Before it
    appears, it is loaded and must give the translator's own texts.

    Args:
        translator: A `Translator`.
        directory: The model's base directory, which a server watches.
        version: The version's number; one more than the highest that is there if not given.
        sentences: Texts that the export must translate as the translator does, besides a few fixed ones.

    Returns:
        The path of the version's directory.

    Raises:
        ValueError: If `version` is not a positive integer.
        FileExistsError: If the version is there already.
        RuntimeError: If the export translates otherwise than the translator, or the weights are no numbers; nothing is
            left then.
    """
    directory = Path(directory)
    if version is None:
        version = max((int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()), default=0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**63:
        raise ValueError(f"`version` must be a positive integer. Received: version={version!r}")
    with new_directory(directory / str(version)) as temporary:
        served = ServedTranslator(translator)
        tf.saved_model.save(served, str(temporary), signatures={"serving_default": served.serving_default})
        _check(translator, temporary, [*_SELF_CHECK, *sentences])
    return directory / str(version)


def _check(translator: Translator, path: Path, texts: list[str]) -> None:
    expected = [hypotheses[0] for hypotheses in translator.translate(texts)]
    outputs = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(texts))
    for index, hypothesis in enumerate(expected):
        if not hypothesis.score > IMPOSSIBLE / 2:
            raise RuntimeError(f"The model finds no sentence for {texts[index][:80]!r}: are its weights numbers?")
        text, score = outputs["translation"][index].numpy().decode(), float(outputs["score"][index])
        if text != hypothesis.text or not np.isclose(score, hypothesis.score, rtol=1e-4, atol=1e-4):
            raise RuntimeError(
                f"The export translates {texts[index][:80]!r} otherwise than the translator: "
                f"{text!r} ({score}) instead of {hypothesis.text!r} ({hypothesis.score})."
            )
