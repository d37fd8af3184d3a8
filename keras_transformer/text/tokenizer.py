"""A SentencePiece tokenizer that runs inside the TensorFlow graph."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformer.text.vocabulary import (
    END_TOKEN_ID,
    PAD_TOKEN_ID,
    SPECIAL_PIECES,
    START_TOKEN_ID,
    learn_vocabulary,
)


class Tokenizer(tf.Module):
    """Text to token ids and back with SentencePiece, in the graph and outside Python.

    The same TensorFlow op serves training data, translation and the exported SavedModel, so all three see the same ids.
    A tokenizer is a `tf.Module`: a module that holds it as an attribute and calls it exports the model with itself.
    Ids 0, 1, 2, 3 are padding, unknown, start and end; text never yields one of them (unknown characters become bytes).

    Args:
        model: a trained SentencePiece model, serialized (`bytes`), with the ids above.

    Raises:
        ValueError: the bytes are no SentencePiece model, or its special ids are others.
        ImportError: TF-Text is not installed.

    Example:

    >>> tokenizer = Tokenizer.train(["the cat sat", "the dog ran"] * 10, vocabulary_size=272)
    >>> ids = tokenizer.tokenize(["the cat ran"])
    >>> tokenizer.detokenize(ids).numpy()[0].decode()
    'the cat ran'
    """

    def __init__(self, model: bytes):
        if not isinstance(model, bytes):
            raise ValueError(
                "`model` must be the bytes of a SentencePiece model; for a path call Tokenizer.load(path). "
                f"Received: model={model!r}"
            )
        self._model_bytes = model
        self._fingerprint = hashlib.sha256(model).hexdigest()[:16]
        # Equal names mean equal models: see `_NamedModel`.
        super().__init__(name=f"tokenizer_{self._fingerprint}")
        self._op = _sentencepiece_op(model, self.name)
        self._vocabulary_size = int(self._op.vocab_size())
        first_pieces = tuple(self.pieces(range(min(4, self._vocabulary_size))))
        if first_pieces != SPECIAL_PIECES:
            raise ValueError(
                f"The SentencePiece model's pieces 0 to 3 must be {', '.join(SPECIAL_PIECES)}; train it with "
                "Tokenizer.train, or with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3. "
                f"Received: {', '.join(first_pieces)}"
            )

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocabulary_size: int = 8000,
        model_type: str = "unigram",
        normalization: str = "nfc",
        character_coverage: float = 0.9995,
        max_sentences: int = 200_000,
        seed: int = 0,
    ) -> Tokenizer:
        """Learns a vocabulary from sentences; the same sentences and arguments give the same model, byte for byte.

        Args:
            sentences: an iterable of strings, read once. For one shared vocabulary chain both languages.
            vocabulary_size: number of ids, with the 4 special ones and the 256 bytes of byte fallback.
            model_type: `"unigram"` or `"bpe"`.
            normalization: what is done to text first. `"nfc"` composes characters and makes all white space a space;
                `"identity"` does nothing. SentencePiece's `"nmt_nfkc"` and `"nfkc"` also fold compatibility characters
                ("ℵ" to "א", "…" to "..."), which cannot be undone. Runs of spaces become one with each of them.
            character_coverage: share of the text's characters that get pieces of their own; the rest become bytes.
            max_sentences: of more sentences than these a uniform sample is taken. A unigram model takes about 30 bytes
                of memory per byte of text to train: some 500 MB for 200,000 sentences of 90 bytes.
            seed: seed of that sample.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: no sentences, or `vocabulary_size` is larger or smaller than the sentences allow.
        """
        _tensorflow_text()  # if it is missing, say so before the training
        model = learn_vocabulary(
            sentences, vocabulary_size, model_type, normalization, character_coverage, max_sentences, seed
        )
        return cls(model)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer from the file that `save` (or the sentencepiece package) wrote.

        Args:
            path: the model's file.

        Returns:
            A `Tokenizer`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no SentencePiece model.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such tokenizer file; save one with Tokenizer.save.")
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SentencePiece model to `path`; a reader sees the old file or the whole new one, never a part.

        Args:
            path: the file to write; its folder is made where missing.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                file.write(self._model_bytes)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def tokenize(self, texts: Any, add_start: bool = False, add_end: bool = False) -> tf.RaggedTensor:
        """Text to ids, without start and end unless asked for.

        The model's source side is `tokenize(texts, add_end=True)`, its target side has both.

        Args:
            texts: a list of strings or a string tensor (B,).
            add_start: put the start id (2) before each sentence.
            add_end: put the end id (3) after each sentence.

        Returns:
            int32 `tf.RaggedTensor` (B, None).

        Raises:
            ValueError: `texts` is a single string or has another rank than 1.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank != 1:
            raise ValueError(
                f"`texts` must be a list of strings or a rank-1 string tensor. Received: shape={texts.shape}"
            )
        ids = self._op.tokenize(texts)  # (B,) -> (B, None)
        column = tf.fill([tf.shape(texts)[0], 1], 1)
        parts = [column * START_TOKEN_ID] * add_start + [ids] + [column * END_TOKEN_ID] * add_end
        return tf.concat(parts, axis=1) if len(parts) > 1 else ids

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Ids to text. A sentence stops at its first end id; other special ids and ids out of range are left out.

        Args:
            token_ids: integer tensor or ragged tensor (B, L), or a list of lists of ids.

        Returns:
            string tensor (B,), always valid UTF-8: bytes that form no character become U+FFFD.

        Raises:
            ValueError: `token_ids` has another rank than 2.
        """
        if isinstance(token_ids, (list, tuple)):
            token_ids = tf.ragged.constant([list(row) for row in token_ids], dtype=tf.int32, ragged_rank=1)
        elif not isinstance(token_ids, tf.RaggedTensor):
            token_ids = tf.convert_to_tensor(token_ids)
        if token_ids.shape.rank != 2:
            raise ValueError(f"`token_ids` must have rank 2. Received: shape={token_ids.shape}")
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(PAD_TOKEN_ID)
        token_ids = tf.cast(token_ids, tf.int32)
        ended = tf.cumsum(tf.cast(tf.equal(token_ids, END_TOKEN_ID), tf.int32), axis=1) > 0
        is_text = (token_ids > END_TOKEN_ID) & (token_ids < self._vocabulary_size) & ~ended
        texts = self._op.detokenize(tf.ragged.boolean_mask(token_ids, is_text))
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def pieces(self, token_ids: Iterable[int]) -> list[str]:
        """The pieces of some ids, as labels for pictures; "▁" marks the start of a word.

        Args:
            token_ids: an iterable or array (L,) of ids.

        Returns:
            A list of L strings.
        """
        ids = [int(token_id) for token_id in token_ids]
        if not ids:
            return []
        if min(ids) < 0 or max(ids) >= self._vocabulary_size:
            raise ValueError(f"`token_ids` must lie in [0, {self._vocabulary_size}). Received: {ids}")
        return [piece.decode() for piece in self._op.id_to_string(tf.constant(ids)).numpy()]

    def id_to_string(self, token_ids: Any) -> tf.Tensor:
        """As `pieces`, inside a graph: an int32 tensor of ids to strings of the same shape."""
        return self._op.id_to_string(token_ids)

    def id_to_piece(self, token_id: int) -> str:
        """The piece of one id, for example `id_to_piece(3) == "</s>"`."""
        return self.pieces([token_id])[0]

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return self._vocabulary_size

    @property
    def model_bytes(self) -> bytes:
        """The SentencePiece model, serialized."""
        return self._model_bytes

    @property
    def fingerprint(self) -> str:
        """The first 16 hexadecimal digits of the model's SHA-256."""
        return self._fingerprint

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self._model_bytes,)


def _tensorflow_text() -> Any:
    try:
        import tensorflow_text
    except ImportError as error:
        raise ImportError(
            "Tokenizer needs TF-Text, which could not be imported; install it with: pip install tensorflow-text "
            f"(the version of your TensorFlow, {tf.__version__}; there is no wheel for Windows)."
        ) from error
    return tensorflow_text


def _sentencepiece_op(model: bytes, name: str) -> Any:
    with tf.init_scope():
        try:
            tokenizer = _tensorflow_text().SentencepieceTokenizer(model, name=name)
        except (tf.errors.InvalidArgumentError, tf.errors.InternalError) as error:
            raise ValueError(
                f"not a SentencePiece model ({len(model)} bytes); give the file that Tokenizer.save wrote."
            ) from error
        tokenizer._model_resource = _NamedModel(model, name)
    return tokenizer


class _NamedModel(tf.saved_model.experimental.TrackableResource):
    """The model as a resource of the graph that is found by its name.

    TF-Text's own resource has no name of its own. It goes when TensorFlow empties its cache of kernels
    (`keras.utils.set_random_seed` and `clear_session` do), and after an export a second model may find the first one's.
    """

    def __init__(self, model: bytes, name: str) -> None:
        super().__init__()
        self._model, self._name = model, name
        _ = self.resource_handle  # made now, so that the first call finds it

    def _create_resource(self) -> tf.Tensor:
        from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

        return gen_sentencepiece_tokenizer.sentencepiece_op(model=self._model, shared_name=self._name)
