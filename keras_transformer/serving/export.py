"""The SavedModel: text in, text out, in TensorFlow Serving and wherever TensorFlow runs."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from keras_transformer._version import __version__
from keras_transformer.layers.arguments import check_positive
from keras_transformer.progress import Progress
from keras_transformer.serving.batches import check_texts
from keras_transformer.serving.files import new_directory
from keras_transformer.serving.operation_check import check_target_server, demands_xla, operations, unknown_operations
from keras_transformer.serving.self_check import check_export
from keras_transformer.serving.served_translator import PIECE_SEPARATOR, ServedTranslator
from keras_transformer.serving.warmup import write_warmup

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

logger = logging.getLogger("keras_transformer")

MOST_WARMUP_REQUESTS = 1000  # a server loads no version with more: kMaxNumRecords of its warmup_consts.h
# In the server's text format, wrapped as its proto asks. Sizes up to the largest: a batch is filled up to one of them.
_BATCHING = """max_batch_size {{ value: {largest} }}
batch_timeout_micros {{ value: 5000 }}
max_enqueued_batches {{ value: 256 }}
num_batch_threads {{ value: 2 }}
{sizes}
"""


def export_translator(
    translator: Translator,
    directory: str | os.PathLike[str],
    version: int | None = None,
    warmup: Sequence[str] = (),
    target_server: str = "2.20",
    num_hypotheses: int | None = None,
    max_batch_size: int = 32,
    model_name: str = "translator",
    metadata: dict[str, Any] | None = None,
) -> Path:
    """Writes `directory/version`, a SavedModel with the signatures of `ServedTranslator`.

    It needs TensorFlow and TF-Text, and not this package. Before it appears, every operation is looked up in the list
    of the server's, and a fresh process loads it and must give the translator's own texts for 50 sentences. Beside it
    `directory/batching_params.pbtxt` says how the server makes batches; where somebody has changed it, it stays so. In
    the version, `assets.extra` holds `tf_serving_warmup_requests` and `model_info.json`.

    Args:
        translator: A `Translator`.
        directory: The model's base directory, which a server watches.
        version: The version's number; one more than the highest that is there if not given.
        warmup: Texts that the server translates before it is ready, at every batch size, besides the shortest and one
            of the longest; they are among those that are compared.
        target_server: The version of TensorFlow Serving that must be able to run it.
        num_hypotheses: How many translations `nbest` gives; `num_beams` if not given.
        max_batch_size: The most sentences that the server puts together.
        model_name: The name in the warm-up requests.
        metadata: What `model_info.json` says besides, for example `{"bleu": 41.0}`.

    Returns:
        The path of the version's directory.

    Raises:
        TypeError: If `warmup` is a single string.
        ValueError: If an argument has an impossible value, or there are more warm-up requests than a server takes.
        FileExistsError: If the version is there already.
        RuntimeError: If the server lacks an operation, the export translates otherwise than the translator, or the
            weights are no numbers; nothing is left then.
    """
    directory = Path(directory)
    if version is None:
        version = max((int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()), default=0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**63:
        raise ValueError(f"`version` must be a positive integer. Received: version={version!r}")
    check_positive("max_batch_size", max_batch_size)
    check_target_server(target_server)
    warmup = check_texts("warmup", warmup)
    num_hypotheses = check_positive(
        "num_hypotheses", translator.num_beams if num_hypotheses is None else num_hypotheses
    )
    if num_hypotheses > translator.num_beams:
        raise ValueError(
            "`num_hypotheses` must be at most the translator's `num_beams`. "
            f"Received: num_hypotheses={num_hypotheses}, num_beams={translator.num_beams}"
        )
    batch_sizes = sorted({*(2**power for power in range(max_batch_size.bit_length())), max_batch_size})
    requests = [(size, text) for size in batch_sizes for text in ("", _longest(translator), *warmup)]
    if len(requests) > MOST_WARMUP_REQUESTS:
        most = MOST_WARMUP_REQUESTS // len(batch_sizes) - 2
        raise ValueError(
            f"`warmup` must hold at most {most} texts, at {len(batch_sizes)} batch sizes each: a server takes "
            f"{MOST_WARMUP_REQUESTS} requests. Received: {len(warmup)} texts"
        )
    with new_directory(directory / str(version)) as temporary, Progress("exporting", 4, "steps") as progress:
        progress(0, "graph and weights")
        served = ServedTranslator(translator, num_hypotheses)
        tf.saved_model.save(served, str(temporary), signatures=served.functions)
        progress(1, "operations")
        _check_operations(temporary, target_server)
        progress(2, "warm-up requests")
        write_warmup(temporary, model_name, requests)
        information = _information(translator, temporary, target_server, num_hypotheses, metadata or {})
        (temporary / "assets.extra" / "model_info.json").write_text(
            json.dumps(information, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        progress(3, "50 sentences in a fresh process")
        check_export(translator, temporary, warmup)
        progress(4, "done")
    _write_batching(directory, batch_sizes)
    return directory / str(version)


def _check_operations(path: Path, target_server: str) -> None:
    if missing := unknown_operations(path, target_server):
        raise RuntimeError(
            f"TensorFlow Serving {target_server} cannot run this export: {'; '.join(missing[:5])}. "
            "Give a newer `target_server`, or leave out what needs it."
        )
    if demanding := demands_xla(path):
        raise RuntimeError(f"The graph demands XLA, which TensorFlow Serving has not: {'; '.join(demanding[:5])}.")


def _longest(translator: Translator) -> str:
    """One sentence that fills the limit: a frequent piece again and again."""
    (piece,) = translator.source_tokenizer.detokenize([[4 + translator.source_tokenizer.vocabulary_size // 2]]).numpy()
    return " ".join([piece.decode().strip() or "a"] * (translator.max_length - 1))


def _information(
    translator: Translator, path: Path, target_server: str, num_hypotheses: int, metadata: dict[str, Any]
) -> dict[str, Any]:
    return {
        **metadata,
        "versions": {
            "keras_transformer": __version__,
            "tensorflow": tf.__version__,
            "tensorflow_text": installed_version("tensorflow-text"),
            "keras": keras.__version__,
        },
        "target_server": target_server,
        "signatures": ["serving_default", "nbest", "score", "attention"],
        "num_hypotheses": num_hypotheses,
        "piece_separator": PIECE_SEPARATOR,
        "search": translator.settings,
        "model": {
            "dtype": translator.model.dtype_policy.name,
            "parameters": translator.model.count_params(),
            **{
                name: value
                for name, value in translator.model.get_config().items()
                if isinstance(value, int) and name != "trainable"
            },
        },
        "vocabulary": {
            "source": translator.source_tokenizer.fingerprint,
            "target": translator.target_tokenizer.fingerprint,
        },
        "operations": operations(path),
    }


def _write_batching(directory: Path, batch_sizes: Sequence[int]) -> None:
    """Whole or not at all, since a server may read it meanwhile; what somebody has changed stays as it is."""
    path = directory / "batching_params.pbtxt"
    if path.exists():
        before = path.read_text(encoding="utf-8")
        sizes = [int(size) for size in re.findall(r"allowed_batch_sizes: (\d+)", before)]
        if not sizes or before != _batching(sizes):
            logger.warning("%s was changed by hand and stays as it is.", path)
            return
    temporary = directory / f".batching_params.{os.getpid()}"
    temporary.write_text(_batching(batch_sizes), encoding="utf-8")
    temporary.replace(path)


def _batching(batch_sizes: Sequence[int]) -> str:
    sizes = "\n".join(f"allowed_batch_sizes: {size}" for size in batch_sizes)
    return _BATCHING.format(largest=batch_sizes[-1], sizes=sizes)
