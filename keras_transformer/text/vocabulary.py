"""Learning a SentencePiece vocabulary from text."""

from __future__ import annotations

import io
import itertools
import math
import random
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from keras_transformer.progress import Progress
from keras_transformer.text.normalization import nfc_rules

PAD_TOKEN_ID = 0
UNK_TOKEN_ID = 1
START_TOKEN_ID = 2
END_TOKEN_ID = 3
NORMALIZATIONS = ("nfc", "identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")

# SentencePiece adds per-thread sums of floats, so the learnt model depends on the number of threads: it is fixed.
_TRAINING_THREADS = 4


def learn_vocabulary(
    sentences: Iterable[str],
    vocabulary_size: int,
    model_type: str,
    normalization: str,
    character_coverage: float,
    max_sentences: int,
    seed: int,
) -> bytes:
    """A SentencePiece model, serialized; the arguments are those of `Tokenizer.train`."""
    if isinstance(sentences, (str, bytes)):
        raise ValueError(f"`sentences` must be an iterable of strings. Received: sentences={sentences!r}")
    _check_positive(vocabulary_size=vocabulary_size, max_sentences=max_sentences)
    _check_choice("model_type", model_type, ("unigram", "bpe"))
    _check_choice("normalization", normalization, NORMALIZATIONS)
    if not 0.98 <= character_coverage <= 1.0:
        raise ValueError(
            f"`character_coverage` must lie in [0.98, 1.0]. Received: character_coverage={character_coverage}"
        )
    with Progress("vocabulary", None, unit="sentences") as progress:
        sample = _sample(progress.over(sentences), max_sentences, seed)
        if not any(sentence.strip() for sentence in sample):
            raise ValueError("`sentences` holds no text: give at least one sentence that is not blank.")
        progress(len(sample), f"learning {vocabulary_size:,} pieces from {len(sample):,} sentences")
        try:
            return _train(
                sample,
                normalization,
                vocab_size=vocabulary_size,
                model_type=model_type,
                character_coverage=character_coverage,
                byte_fallback=True,
                pad_id=PAD_TOKEN_ID,
                unk_id=UNK_TOKEN_ID,
                bos_id=START_TOKEN_ID,
                eos_id=END_TOKEN_ID,
                num_threads=_TRAINING_THREADS,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(_training_failure(str(error), vocabulary_size)) from error


def _train(sentences: Sequence[str], normalization: str, **options: Any) -> bytes:
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise ImportError("Tokenizer.train needs SentencePiece; install it with: pip install sentencepiece") from error
    proto: Any = sentencepiece_model_pb2
    writer = io.BytesIO()
    options.update(sentence_iterator=iter(sentences), model_writer=writer)
    if normalization != "nfc":
        sentencepiece.SentencePieceTrainer.train(normalization_rule_name=normalization, **options)
        return writer.getvalue()
    with tempfile.TemporaryDirectory() as directory:
        rules = Path(directory, "nfc.tsv")
        rules.write_text(nfc_rules(), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(normalization_rule_tsv=str(rules), **options)
    # The model holds the rules' path, which differs each time; the same text is to give the same bytes.
    model = proto.ModelProto.FromString(writer.getvalue())
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    model.normalizer_spec.name = "nfc"
    return model.SerializeToString(deterministic=True)


def _check_positive(**arguments: int) -> None:
    for name, value in arguments.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an integer above 0. Received: {name}={value!r}")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")


def _sample(sentences: Iterable[str], size: int, seed: int) -> Sequence[str]:
    """A uniform sample of at most `size` sentences in one pass (Li 1994, Algorithm L)."""
    stream = iter(sentences)
    sample = list(itertools.islice(stream, size))
    rng = random.Random(seed)
    weight = 1.0
    while True:
        weight *= math.exp(math.log(1.0 - rng.random()) / size)
        skip = math.floor(math.log(1.0 - rng.random()) / math.log(1.0 - weight)) if weight < 1.0 else 0
        sentence = next(itertools.islice(stream, skip, None), None)
        if sentence is None:
            return sample
        sample[rng.randrange(size)] = sentence


def _training_failure(message: str, vocabulary_size: int) -> str:
    """SentencePiece's message as one line that says what to do."""
    if match := re.search(r"value <= (\d+)", message):
        return (
            f"vocabulary_size={vocabulary_size} is larger than the text allows; "
            f"the largest size possible is {match[1]}. Lower it, or give more text."
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"vocabulary_size={vocabulary_size} is too small: the text's characters, 256 bytes and 4 special ids need "
            f"at least {match[1]}. Raise it, or lower character_coverage."
        )
    if "sentences_.empty()" in message:
        return "No sentence can be used for training: each is blank or longer than 4192 bytes."
    return f"SentencePiece could not learn a vocabulary: {' '.join(message.split())}"
