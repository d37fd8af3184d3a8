"""BLEU and chrF of the model while it trains."""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.layers.arguments import check_positive
from keras_transformer.training.event_files import EventWriter
from keras_transformer.training.trained_model import check_trained_model, is_due, updates_made
from keras_transformer.training.workers import Workers

logger = logging.getLogger("keras_transformer")


class TranslationScores(NamedTuple):
    """What sacrebleu makes of the translations after so many optimizer updates; both scores of 100."""

    update: int
    bleu: float
    chrf: float


class BleuCallback(keras.callbacks.Callback):
    """Translates held-out sentences with the weights of the moment and puts `val_bleu` and `val_chrf` into the logs.

    Scores are sacrebleu's, equal to its command line on the same texts. Callbacks run in the order of their list and
    share one dict of logs, so put this before `EarlyStopping`, `ModelCheckpoint`, `Checkpointing` and whatever else
    monitors the scores or writes the logs down. In epochs without translation the logs do not hold them, as Keras does
    with `validation_freq`.

    Under several workers each translates all sentences, with the same weights, and takes the chief's scores: callbacks
    that stop on them do so everywhere.

    Args:
        translator: `translator(list of str) -> list of str`, a `Translator` of the model that is trained.
        pairs: Source and reference of every sentence: a `ParallelCorpus`, or a list of pairs of strings.
        every_epochs: Translate at the end of every so many epochs; `None` for none.
        every_steps: Translate as well each time so many optimizer updates are reached or passed; the scores go to the
            log, to `history` and to `log_dir`, as `update/val_bleu` and `update/val_chrf`.
        name_prefix: What the names in the logs begin with.
        max_sentences: Take only the first so many pairs.
        num_beams: Search with so many beams, 1 is greedy and fast; as the translator does by itself if not given.
        tokenize: sacrebleu's tokenizer for BLEU; `"none"` for texts that are tokenized already.
        lowercase: Whether both scores ignore case.
        log_dir: Directory of TensorBoard's event files for `every_steps`; that of `TrainingCurves` will do.

    Attributes:
        signature: sacrebleu's signatures of BLEU and chrF, which make scores comparable.
        history: A `TranslationScores` (update, bleu, chrf) for each time that it translated.

    Raises:
        ValueError: If there are no pairs or an argument has an impossible value; at the start of `fit`, if a callback
            before this one monitors the scores, or if the translator's model is not the one that is trained; and if
            the translator gives more or fewer translations than there are sentences.
        TypeError: If `translator` cannot be called or `pairs` holds something else.

    Example:
        >>> def train(model, dataset, translator, validation):
        ...     bleu = BleuCallback(translator, validation, num_beams=1)
        ...     stop = keras.callbacks.EarlyStopping("val_bleu", patience=5, mode="max")
        ...     model.fit(dataset, epochs=50, callbacks=[bleu, stop])

    Reference:
        Post (2018), "A Call for Clarity in Reporting BLEU Scores"; Popović (2015), chrF.
    """

    def __init__(
        self,
        translator: Callable[[list[str]], Sequence[str]],
        pairs: Iterable[tuple[str, str]],
        every_epochs: int | None = 1,
        every_steps: int | None = None,
        name_prefix: str = "val_",
        max_sentences: int | None = None,
        num_beams: int | None = None,
        tokenize: str = "13a",
        lowercase: bool = False,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not callable(translator):
            raise TypeError(f"`translator` must take a list of strings. Received: translator={translator!r}")
        for name, value in (("every_epochs", every_epochs), ("every_steps", every_steps), ("num_beams", num_beams)):
            if value is not None:
                check_positive(name, value)
        if every_epochs is None and every_steps is None:
            raise ValueError("One of `every_epochs` and `every_steps` must be given. Received: None for both")
        if num_beams is not None and not hasattr(translator, "num_beams"):
            raise ValueError(f"`num_beams` needs a translator that has it. Received: translator={translator!r}")
        self.translator = translator
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.num_beams = num_beams
        self.log_dir = log_dir
        self.names = (f"{name_prefix}bleu", f"{name_prefix}chrf")
        self.history: list[TranslationScores] = []
        self._sources, references = _sides(pairs, max_sentences)
        self._metrics = _sacrebleu_metrics(references, tokenize, lowercase)
        self.signature = "BLEU {}; chrF2 {}".format(*(metric.get_signature() for metric in self._metrics))
        self._writer: EventWriter | None = None
        self._too_early: list[str] = []
        self._workers = Workers()
        self._last_update: int | None = None

    def get_state(self) -> dict[str, Any]:
        """For `Checkpointing`."""
        return {"history": [tuple(scores) for scores in self.history], "last_update": self._last_update}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave."""
        self.history = [TranslationScores(*scores) for scores in state["history"]]
        self._last_update = state["last_update"]

    def set_callbacks(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Takes the list that this callback runs in; `DistributedModel.fit` gives it before the training begins."""
        before = itertools.takewhile(lambda callback: callback is not self, callbacks)
        self._too_early = [
            f"{type(callback).__name__} (monitor={callback.monitor!r})"
            for callback in before
            if getattr(callback, "monitor", None) in self.names
        ]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._too_early:
            raise ValueError(
                f"BleuCallback must come before {', '.join(self._too_early)} in `callbacks`: they run in that order, "
                "and what is monitored is in the logs from BleuCallback on."
            )
        check_trained_model(getattr(self.translator, "model", None), self.model)
        self._last_update = None  # a checkpoint may still be restored: known at the first batch
        self._workers = Workers(self.model.distribute_strategy)
        if self.log_dir is not None and self.every_steps is not None and self._workers.is_chief:
            self._writer = EventWriter(self.log_dir)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._last_update is None:
            self._last_update = updates_made(self.model)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.every_steps is None:
            return
        assert self._last_update is not None
        update = updates_made(self.model)
        passed = is_due(self.every_steps, self._last_update, update)
        self._last_update = update
        if passed:
            scores = self._scores(update)
            if self._writer is not None:
                named = zip(self.names, scores[1:], strict=True)
                self._writer.write(update, {f"update/{name}": score for name, score in named})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.every_epochs is None or (epoch + 1) % self.every_epochs:
            return
        update = updates_made(self.model)
        # The epoch's last update may just have been translated after.
        done = self._last_update == update and self.history and self.history[-1].update == update
        scores = self.history[-1] if done else self._scores(update)
        if logs is not None:
            logs.update(zip(self.names, scores[1:], strict=True))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _scores(self, update: int) -> TranslationScores:
        translations = self._translate()
        values = [metric.corpus_score(translations, None).score for metric in self._metrics]
        scores = TranslationScores(update, *(_from_chief(self._workers, value) for value in values))
        self.history.append(scores)
        logger.info(
            "update %d: %s %.2f, %s %.2f on %d sentences (%s)",
            *(update, self.names[0], scores.bleu, self.names[1], scores.chrf, len(translations), self.signature),
        )
        return scores

    def _translate(self) -> list[str]:
        translator: Any = self.translator
        own = getattr(translator, "num_beams", None)
        try:
            if self.num_beams is not None:
                translator.num_beams = self.num_beams
            translations = list(translator(list(self._sources)))
        finally:
            if self.num_beams is not None:
                translator.num_beams = own
        if len(translations) != len(self._sources):
            raise ValueError(
                f"`translator` must give a translation for each of {len(self._sources)} sentences. "
                f"Received: {len(translations)} translations"
            )
        for translation in translations:
            if not isinstance(translation, str):
                raise TypeError(f"`translator` must give strings. Received: {translation!r}")
        return translations


def _sides(pairs: Iterable[tuple[str, str]], max_sentences: int | None) -> tuple[list[str], list[str]]:
    if max_sentences is not None:
        check_positive("max_sentences", max_sentences)
    held = list(itertools.islice(pairs, max_sentences))
    for pair in held:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise TypeError(f"`pairs` must hold (source, reference) strings. Received: {pair!r}")
    if not held:
        raise ValueError("`pairs` must hold at least one sentence and its reference. Received: none")
    return [source for source, _ in held], [reference for _, reference in held]


def _sacrebleu_metrics(references: list[str], tokenize: str, lowercase: bool) -> tuple[Any, Any]:
    from sacrebleu.metrics import BLEU, CHRF

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"`tokenize` must be one of {sorted(BLEU.TOKENIZERS)}. Received: tokenize={tokenize!r}")
    # Given the references now, they are tokenized once.
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, references=[references])
    return bleu, CHRF(lowercase=lowercase, references=[references])


def _from_chief(workers: Workers, value: float) -> float:
    """The chief's number on every worker: one whose processor rounds otherwise must not decide otherwise."""
    bits = workers.from_chief(int(np.float64(value).view(np.int64)))
    return float(np.int64(bits).view(np.float64))
