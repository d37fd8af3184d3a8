"""A translator on disk: the model, its tokenizers, and the settings of the search."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.models.transformer import Transformer
from keras_transformer.serving.files import new_directory
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator


def save_translator(translator: Translator, directory: Path) -> None:
    """See `Translator.save`."""
    if directory.exists() and not (directory / "translator.json").is_file():
        raise ValueError(f"{directory} exists and is no saved translator: give another directory.")
    with new_directory(directory, replace=True) as temporary:
        translator.model.save(temporary / "model.keras")
        translator.source_tokenizer.save(temporary / "source.spm")
        if translator.target_tokenizer is not translator.source_tokenizer:
            translator.target_tokenizer.save(temporary / "target.spm")
        tokenizers = [translator.source_tokenizer.fingerprint, translator.target_tokenizer.fingerprint]
        description = json.dumps({"settings": translator.settings, "tokenizers": tokenizers}, indent=2)
        (temporary / "translator.json").write_text(description + "\n", encoding="utf-8")


def load_translator(directory: Path) -> tuple[Transformer, Tokenizer, Tokenizer, dict[str, Any]]:
    """Model, source and target tokenizer, and settings; see `Translator.load`."""
    if not (directory / "translator.json").is_file():
        inside = directory / "translator"  # where a run has its own
        where = inside if (inside / "translator.json").is_file() else "the directory that `Translator.save` wrote"
        raise FileNotFoundError(f"{directory}: no saved translator (translator.json is missing); give {where}.")
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
    return model, source, target, settings
