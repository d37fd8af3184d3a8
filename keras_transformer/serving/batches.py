"""Many texts from Python: their sentences by length, in batches side by side, and back in the order given."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformer.models.hypotheses_cache import HypothesesCache
from keras_transformer.serving.compiled_search import CompiledSearch
from keras_transformer.serving.text_to_text import TextToText
from keras_transformer.text.vocabulary import END_TOKEN_ID, PAD_TOKEN_ID

PREFIX_STEP = 8  # lengths of prefixes are multiples of this: XLA compiles for each length
MOST_FUNCTIONS = 64  # that are kept: a service may give each request a temperature of its own
TEXTS_AT_ONCE = 4096  # tokenized together; their sentences are sorted by length
MOST_SIDE_BY_SIDE = 8  # searches: each takes memory of its own
Batch = TypeVar("Batch")
Result = TypeVar("Result")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SearchInBatches:
    """Runs a search over the sentences of many texts, and keeps what was traced or compiled for it.

    Args:
        graph: What turns texts into ids and ids into texts.
    """

    def __init__(self, graph: TextToText) -> None:
        self.graph = graph
        self._functions: dict[tuple, Any] = {}

    def run(
        self,
        texts: list[str],
        key: tuple,
        search: Callable,
        jit_compile: bool,
        batch_size: int,
        prefixes: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> list[tuple]:
        """For every text its n translations, their n scores, and whether it was cut.

        Args:
            texts: Any number.
            key: What the search depends on, besides its arguments.
            search: `search(ids)`, with the keyword `cache_class`; after the ids come the tokens of the prefixes or the
                seed, where there are any.
            jit_compile: Whether XLA compiles the search.
            batch_size: Sentences of a batch.
            prefixes: As many beginnings of translations, or `None`.
            seed: Of a draw.
        """
        prefixes = None if prefixes is None else check_texts("prefixes", prefixes)
        if prefixes is not None and len(prefixes) != len(texts):
            raise ValueError(
                f"`prefixes` must be as many as `texts`. Received: {len(prefixes)} prefixes, {len(texts)} texts"
            )
        others = [tf.TensorSpec([None, None], tf.int32)] * (prefixes is not None)
        others += [tf.TensorSpec([], tf.int32)] * (seed is not None)
        function = self._search_function((*key, len(others)), search, jit_compile, others)
        rows: list[tuple] = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = slice(start, start + TEXTS_AT_ONCE)
            begun = None if prefixes is None else prefixes[some]
            rows += self._run_some(texts[some], function, batch_size, begun, seed)
        return rows

    def _run_some(
        self, texts: list[str], search: Callable, batch_size: int, prefixes: Sequence[str] | None, seed: int | None
    ) -> list[tuple]:
        sources = self._function(self.graph.sources, tf.TensorSpec([None], tf.string))(tf.constant(texts))
        to_texts = self._function(self.graph.target_texts, tf.TensorSpec([None, None, None], tf.int32))
        ids, prefix_ids = sources.ids.numpy(), None
        if prefixes is not None:
            prefix_ids = self._prefix_ids(prefixes, sources.sentences.rows.numpy())
        lengths = (ids != PAD_TOKEN_ID).sum(axis=1)
        order = np.argsort(lengths, kind="stable")

        def translated(rows: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
            others = [] if prefix_ids is None else [tf.constant(prefix_ids[rows])]
            others += [] if seed is None else [tf.constant(seed, tf.int32)]
            target_ids, scores = search(tf.constant(ids[rows, : lengths[rows].max()]), *others)
            return to_texts(target_ids), scores

        starts = range(0, len(order), batch_size)
        found = side_by_side(translated, [order[start : start + batch_size] for start in starts])
        back = np.argsort(order)
        translations, scores = (tf.gather(tf.concat(each, axis=0), back) for each in zip(*found, strict=True))
        outputs = self.graph.join(translations, scores, sources)
        return list(zip(*(outputs[name].numpy() for name in ("translation", "score", "truncated")), strict=True))

    def _prefix_ids(self, prefixes: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """`(P, L)`: the prefix of every text's first sentence, padding in the others."""
        ids = self.graph.target_tokenizer.tokenize(list(prefixes)).to_tensor().numpy()
        ids = np.pad(ids, [(0, 0), (0, -ids.shape[1] % PREFIX_STEP)])
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])
        return np.where(is_first[:, None], ids[rows], PAD_TOKEN_ID)

    def _function(self, function: Callable, signature: tf.TensorSpec) -> Any:
        """One trace for every number and length of sentences."""
        key = (function.__name__, self.graph.max_length)
        if key not in self._functions:
            self._functions[key] = tf.function(function, input_signature=[signature], autograph=False)
        return self._functions[key]

    def _search_function(self, key: tuple, search: Callable, jit_compile: bool, others: list[tf.TensorSpec]) -> Any:
        """The search in a plain graph, traced once for every shape; or compiled by XLA, for a few rounded shapes."""
        if key not in self._functions:
            if len(self._functions) >= MOST_FUNCTIONS:
                self._functions.clear()
            if jit_compile:
                compiled = functools.partial(search, cache_class=HypothesesCache)
                self._functions[key] = CompiledSearch(compiled, (END_TOKEN_ID,))
            else:
                signature = [tf.TensorSpec([None, None], tf.int32), *others]
                self._functions[key] = tf.function(search, input_signature=signature, autograph=False)
        return self._functions[key]


def side_by_side(function: Callable[[Batch], Result], batches: Sequence[Batch]) -> list[Result]:
    """`function` of every batch; on CPUs as many at a time as TensorFlow has threads between operations, at most 8.

    A step of a search is of operations so small that two cores gain little on one of them: two searches, a core each,
    are done long before two in turn.
    """
    threads = tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count() or 1
    number = min(threads, len(batches), MOST_SIDE_BY_SIDE)
    if number <= 1 or tf.config.list_physical_devices("GPU"):
        return [function(batch) for batch in batches]
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(function, batches))


def check_texts(name: str, texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        TypeError: If it is one string, or holds something else than strings.
        ValueError: If a string has half of a surrogate pair, which no UTF-8 can hold.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"`{name}` must be a list of strings, not one string: [{texts!r}].")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"`{name}` must hold strings. Received: {text!r}")
        if _SURROGATE.search(text):
            raise ValueError(f"`{name}` must hold Unicode without lone surrogates. Received: {text[:80]!r}")
    return texts
