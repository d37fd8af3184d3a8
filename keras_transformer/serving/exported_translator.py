"""An export used from Python: the SavedModel with its settings fixed, and nothing of the model's code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformer.layers.arguments import check_positive
from keras_transformer.serving.batches import check_texts, side_by_side
from keras_transformer.serving.hypothesis import Hypothesis


class ExportedTranslator:
    """Translates with what `Translator.export` wrote, as a server does.

    Args:
        directory: A version's directory, or the base directory, whose highest version is taken.

    Raises:
        FileNotFoundError: If there is no export.
        ValueError: If it is damaged, or another SavedModel.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        import tensorflow_text  # noqa: F401 (its operations are in the graph)

        self.directory = find_export(Path(directory))
        try:
            self._signatures = tf.saved_model.load(str(self.directory)).signatures
        except (OSError, tf.errors.OpError) as error:
            raise ValueError(
                f"{self.directory} is damaged: export it again ({' '.join(str(error).split())})."
            ) from error
        if not {"serving_default", "nbest"} <= set(self._signatures):
            raise ValueError(
                f"{self.directory} is no export of a `Translator`. Received: signatures {sorted(self._signatures)}"
            )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the graph and of the weights' checksums."""
        files = ("saved_model.pb", "variables/variables.index")
        return hashlib.sha256(b"".join((self.directory / name).read_bytes() for name in files)).hexdigest()

    @property
    def num_hypotheses(self) -> int:
        """How many translations there are at most."""
        return int(self._signatures["nbest"].structured_outputs["score"].shape[1])

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """The best translation of every text, in the order given."""
        return [hypotheses[0].text for hypotheses in self.translate(texts)]

    def translate(self, texts: Sequence[str], num_hypotheses: int = 1, batch_size: int = 32) -> list[list[Hypothesis]]:
        """The n best translations of every text; arguments and result are those of `Translator.translate`.

        Raises:
            TypeError: If `texts` is a single string.
            ValueError: If an argument has an impossible value.
        """
        texts = check_texts("texts", texts)
        check_positive("batch_size", batch_size)
        if check_positive("num_hypotheses", num_hypotheses) > self.num_hypotheses:
            raise ValueError(
                f"`num_hypotheses` must be at most the {self.num_hypotheses} that {self.directory} was exported with. "
                f"Received: num_hypotheses={num_hypotheses}"
            )
        signature = self._signatures["nbest" if num_hypotheses > 1 else "serving_default"]
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

        def translated(rows: list[int]) -> list[Any]:
            outputs = signature(text=tf.constant([texts[row] for row in rows]))
            return [outputs[name].numpy().reshape(len(rows), -1) for name in ("translation", "score", "truncated")]

        results: list[list[Hypothesis]] = [[] for _ in texts]
        for rows, columns in zip(batches, side_by_side(translated, batches), strict=True):
            for row, translations, scores, (truncated,) in zip(rows, *columns, strict=True):
                results[row] = [
                    Hypothesis(text.decode(), float(score), bool(truncated))
                    for text, score in list(zip(translations, scores, strict=True))[:num_hypotheses]
                ]
        return results


def find_export(directory: Path) -> Path:
    """The version's directory: itself, or the highest version below it."""
    if (directory / "saved_model.pb").is_file():
        return directory
    versions = [
        path for path in directory.glob("[0-9]*") if path.name.isdecimal() and (path / "saved_model.pb").is_file()
    ]
    if not versions:
        raise FileNotFoundError(f"{directory}: no export (no saved_model.pb there or in a numbered directory below).")
    return max(versions, key=lambda path: int(path.name))
