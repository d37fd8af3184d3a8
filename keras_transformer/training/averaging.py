"""The mean of several checkpoints' weights, which is often a better model than the last one."""

import os
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.progress import Progress
from keras_transformer.training.checkpoint_file import (
    Checkpoint,
    DamagedCheckpointError,
    checkpoint_paths,
    logger,
    read_checkpoint,
)
from keras_transformer.training.variable_state import arrays_of, check_same_variables, model_variables, seed_states


def average_checkpoints(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], model: keras.Model, last: int | None = None
) -> list[Path]:
    """Gives a model the mean of the weights of several checkpoints that `Checkpointing` has written.

    The mean is taken in float64 and cast to the weights' types. Weights that are whole numbers and the seeds' states
    stay as they are, and so does the optimizer.

    Args:
        paths: A directory of checkpoints, of which damaged ones are passed over with a warning, or a list of files,
            oldest first.
        model: A built model.
        last: Of these, take as many of the newest; all if not given.

    Returns:
        The files whose mean it is, in that order.

    Raises:
        ValueError: If there is no checkpoint, if one is of another model, or if the model is not built.
        DamagedCheckpointError: If a file of a list is damaged.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> model = Transformer(29, num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8)
        >>> model.compile("adam", loss=SmoothedCrossentropy())
        >>> ids = np.full((4, 3), 5)
        >>> data = ({"encoder_token_ids": ids, "decoder_token_ids": ids}, ids)
        >>> history = model.fit(*data, epochs=3, verbose=0, callbacks=[Checkpointing(directory)])
        >>> files = average_checkpoints(directory, model, last=2)
        >>> assert [file.name for file in files] == ["update-00000002.ckpt", "update-00000003.ckpt"]
    """
    if last is not None and (isinstance(last, bool) or not isinstance(last, int) or last < 1):
        raise ValueError(f"`last` must be an integer above 0, or None. Received: last={last!r}")
    if not model.built:
        raise ValueError("average_checkpoints needs a model that is built.")
    single = isinstance(paths, (str, os.PathLike))
    files = checkpoint_paths(Path(paths)) if single else [Path(path) for path in paths]  # type: ignore[arg-type,union-attr]
    seeds = {id(state) for state in seed_states(model)}
    variables = model_variables(model)
    averaged = [
        number
        for number, variable in enumerate(variables)
        if id(variable) not in seeds and keras.backend.is_float_dtype(variable.dtype)
    ]
    sums = [np.zeros(variables[number].shape, "float64") for number in averaged]
    used: list[Path] = []
    with Progress("averaging", len(files) if last is None else min(last, len(files)), "checkpoints") as progress:
        for file in reversed(files):
            if last is not None and len(used) == last:
                break
            checkpoint = _read(file, pass_over=single)
            if checkpoint is None:
                continue
            check_same_variables(file, "model", variables, checkpoint.arrays)
            arrays = list(arrays_of("model", checkpoint.arrays).values())
            for total, number in zip(sums, averaged, strict=True):
                total += arrays[number].astype("float64")
            used.append(file)
            progress(len(used))
    if not used:
        raise ValueError(f"There is no intact checkpoint to average. Received: paths={paths!r}")
    for total, number in zip(sums, averaged, strict=True):
        mean = total / len(used)
        variables[number].assign(mean.astype(variables[number].dtype))
    return used[::-1]


def _read(path: Path, pass_over: bool) -> Checkpoint | None:
    try:
        return read_checkpoint(path)
    except DamagedCheckpointError as error:
        if not pass_over:
            raise
        logger.warning("passed over a damaged checkpoint: %s", error)
        return None
