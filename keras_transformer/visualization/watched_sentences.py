"""The sentences that a training is watched at: their attention and translations with the weights of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.models.transformer import Transformer
from keras_transformer.text.vocabulary import END_TOKEN_ID, PAD_TOKEN_ID, START_TOKEN_ID
from keras_transformer.visualization.attention_maps import AttentionMaps

MAX_SENTENCES = 8
_WHAT_COMES = "…"  # names the row that writes what comes after the last id given


class Look(NamedTuple):
    """One sentence at one moment; `text` is Markdown, `None` where there are ids and no text."""

    attention: AttentionMaps
    text: str | None


def watch(translator: Any, sentences: Sequence[Any]) -> WatchedTexts | WatchedTokenIds:
    """Some sentences of a translator, or some pairs of token ids of a model.

    Raises:
        TypeError: If the first is neither, or a sentence is not what goes with it.
        ValueError: If there is no sentence, or too many, or an id is out of range.
    """
    sentences = [sentences] if isinstance(sentences, str) else list(sentences)
    if not 1 <= len(sentences) <= MAX_SENTENCES:
        raise ValueError(f"`sentences` must be 1 to {MAX_SENTENCES}. Received: {len(sentences)} sentences")
    if isinstance(translator, Transformer):
        return WatchedTokenIds(translator, sentences)
    if not all(hasattr(translator, name) for name in ("model", "source_tokenizer", "target_tokenizer", "source_ids")):
        raise TypeError(f"`translator` must be a `Translator` or a `Transformer`. Received: translator={translator!r}")
    return WatchedTexts(translator, sentences)


class WatchedTexts:
    """Sentences as text. Without a target the attention is that of the model's own, greedy translation.

    They go through the model together, and through one trace whatever their lengths. The translator's own search would
    have to be traced for them, which takes longer than a hundred forward passes.

    Args:
        translator: A `Translator`.
        sentences: Sources, or pairs of source and target.
    """

    def __init__(self, translator: Any, sentences: Sequence[Any]) -> None:
        pairs = [(each, None) if isinstance(each, str) else each for each in sentences]
        for pair in pairs:
            sides = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None,)
            if not isinstance(sides[0], str) or not isinstance(sides[-1], (str, type(None))):
                raise TypeError(
                    "`sentences` of a translator must be strings, or (source, target) pairs of strings. "
                    f"Received: {pair!r}"
                )
        self.translator = translator
        self.sources = [source for source, _ in pairs]
        self.targets = [target for _, target in pairs]
        self.forward = ForwardPass(translator.model)

    def __len__(self) -> int:
        return len(self.sources)

    def look(self) -> list[Look]:
        """The sentences now."""
        import tensorflow as tf

        tokenizer = self.translator.target_tokenizer
        source_ids = self.translator.source_ids(tf.constant(self.sources))[0].numpy()
        ids, scores = self._translate(source_ids)
        texts = [text.decode() for text in tokenizer.detokenize(ids).numpy()]
        if any(target is not None for target in self.targets):
            given = tokenizer.tokenize([target or "" for target in self.targets], add_start=True)
            rows = [
                list(own[own != PAD_TOKEN_ID])
                if target is None
                else [*forced[: self.translator.max_length], END_TOKEN_ID]
                for own, forced, target in zip(ids, given.to_list(), self.targets, strict=True)
            ]
            ids = _rectangle(rows, PAD_TOKEN_ID)
            _, scores = self.forward(source_ids, _inputs(ids[:, :-1]))
        weights = _without_padding(scores, source_ids != PAD_TOKEN_ID, _inputs(ids[:, :-1]) != PAD_TOKEN_ID)
        return [
            Look(
                AttentionMaps(
                    self.translator.source_tokenizer.pieces(read[read != PAD_TOKEN_ID]),
                    tokenizer.pieces(written[written != PAD_TOKEN_ID][:-1]),
                    tokenizer.pieces(written[written != PAD_TOKEN_ID][1:]),
                    **maps,
                ),
                markdown_table({"source": source, "translation": text, "reference": target}),
            )
            for maps, read, written, source, text, target in zip(
                weights, source_ids, ids, self.sources, texts, self.targets, strict=True
            )
        ]

    def _translate(self, source_ids: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """The likeliest token after each other, as the greedy search takes them.

        Returns:
            Ids from the start token to the end token, `(B, T + 1)`, and the weights of all but the last as inputs.
        """
        longest, shortest = (np.asarray(limit) for limit in self.translator.target_limits(source_ids)[:2])
        ids = np.full((len(source_ids), 1), START_TOKEN_ID, np.int32)
        running = np.full(len(source_ids), True)
        scores: dict[str, Any] = {}
        while running.any():
            logits, scores = self.forward(source_ids, _inputs(ids))
            logits[:, [PAD_TOKEN_ID, START_TOKEN_ID]] = -np.inf
            logits[ids.shape[1] < shortest, END_TOKEN_ID] = -np.inf
            tokens = np.where(ids.shape[1] >= longest, END_TOKEN_ID, logits.argmax(axis=1))
            tokens = np.where(running, tokens, PAD_TOKEN_ID).astype(np.int32)
            ids = np.concatenate([ids, tokens[:, None]], axis=1)
            running &= tokens != END_TOKEN_ID
        return ids, scores


class WatchedTokenIds:
    """Pairs of the ids that a model is given, for those who have no text. The pictures name ids.

    Args:
        model: A `Transformer`.
        pairs: Encoder token ids and decoder token ids; padding is left out.
    """

    def __init__(self, model: Transformer, pairs: Sequence[Any]) -> None:
        self.sides = [
            _rectangle([_checked_ids(pair, side, model) for pair in pairs], model.pad_token_id) for side in (0, 1)
        ]
        self.pad_token_id = model.pad_token_id
        self.forward = ForwardPass(model)

    def __len__(self) -> int:
        return len(self.sides[0])

    def look(self) -> list[Look]:
        """The pairs now."""
        real = [ids != self.pad_token_id for ids in self.sides]
        _, scores = self.forward(*self.sides)
        looks = []
        for maps, *ids in zip(_without_padding(scores, *real), *self.sides, strict=True):
            source, target = ([str(token) for token in row if token != self.pad_token_id] for row in ids)
            looks.append(Look(AttentionMaps(source, target, [*target[1:], _WHAT_COMES], **maps), None))
        return looks


class ForwardPass:
    """The model's logits after the last position, and its attention, traced once for every number and length.

    Args:
        model: A `Transformer`.

    Attributes:
        is_traced: Whether it has run: the first time takes seconds.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.is_traced = False

    def trace(self) -> None:
        """Has it traced and run, if it is not."""
        if not self.is_traced:
            one = np.array([[END_TOKEN_ID]])
            self(one, one)

    def __call__(self, source_ids: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """`(B, S)` and `(B, T)` ids -> `(B, V)`, a copy, and of each kind the layers' weights `(B, N, T|S, T|S)`."""
        if not self.is_traced:
            self._function = self._traced()
        logits, scores = self._function(source_ids.astype(np.int32), inputs.astype(np.int32))
        self.is_traced = True
        return np.array(logits), scores

    def _traced(self) -> Any:
        import tensorflow as tf

        def last_logits_and_scores(source_ids: Any, inputs: Any) -> Any:
            logits, scores = self.model(
                {"encoder_token_ids": source_ids, "decoder_token_ids": inputs},
                training=False,
                return_attention_scores=True,
            )
            return logits[:, -1], scores

        ids = tf.TensorSpec([None, None], tf.int32)
        return tf.function(last_logits_and_scores, input_signature=[ids, ids], autograph=False)


def markdown_table(texts: dict[str, str | None]) -> str:
    """A row for each text that there is. Letters, digits and blanks are themselves, and all else is its code: what
    would be HTML or Markdown is shown as it was written."""
    rows = [f"| {name} | {_verbatim(text)} |" for name, text in texts.items() if text is not None]
    return "\n".join([rows[0], "|---|---|", *rows[1:]])


def _verbatim(text: str) -> str:
    def shown(character: str) -> str:
        if character.isspace():
            return " "
        if character.isalnum():
            return character
        return f"&#{ord(character) if character.isprintable() else 0xFFFD};"

    return "".join(map(shown, text))


def _inputs(ids: np.ndarray) -> np.ndarray:
    """The end is no input of the decoder: where a row has ended before the others, there is padding."""
    return np.where(ids == END_TOKEN_ID, PAD_TOKEN_ID, ids)


def _without_padding(
    scores: dict[str, Any], real_source: np.ndarray, real_inputs: np.ndarray
) -> list[dict[str, np.ndarray]]:
    """Of each sentence the weights of each kind, `(layers, N, T|S, T|S)`, without the rows and columns of padding."""
    stacked = {kind: np.stack([np.asarray(layer) for layer in layers], axis=1) for kind, layers in scores.items()}
    maps = []
    for row, (source, inputs) in enumerate(zip(real_source, real_inputs, strict=True)):
        sides = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (inputs, source)}
        maps.append({kind: stacked[kind][row][:, :, queries][:, :, :, keys] for kind, (queries, keys) in sides.items()})
    return maps


def _checked_ids(pair: Any, side: int, model: Transformer) -> list[int]:
    """One side of a pair, as integers within the vocabulary, at least one of which is no padding."""
    try:
        ids = [np.asarray(ids) for ids in pair]
    except TypeError:
        ids = []
    if len(ids) != 2 or any(each.ndim != 1 or (each.size and each.dtype.kind not in "iu") for each in ids):
        raise TypeError(
            "`sentences` of a model must be pairs of encoder and decoder token ids, lists of integers. "
            f"Received: {pair!r}"
        )
    size = model.config[("source_vocabulary_size", "target_vocabulary_size")[side]]
    if not (ids[side] != model.pad_token_id).any() or ids[side].min() < 0 or ids[side].max() >= size:
        name = ("encoder", "decoder")[side]
        raise ValueError(
            f"`sentences` must hold {name} token ids from 0 to {size - 1}, and not padding alone. "
            f"Received: {ids[side].tolist()}"
        )
    return [int(token) for token in ids[side]]


def _rectangle(rows: Sequence[Sequence[int]], padding: int) -> np.ndarray:
    """Rows of several lengths -> `(B, L)`, int32, filled up."""
    length = max(map(len, rows))
    return np.array([[*row, *[padding] * (length - len(row))] for row in rows], np.int32)
