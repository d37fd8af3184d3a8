"""Everything that the next step of a training depends on, as arrays and facts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.training.callback_state import attributes, callbacks_state, ended_training, restore_callbacks
from keras_transformer.training.checkpoint_file import Checkpoint
from keras_transformer.training.variable_state import (
    arrays_of,
    assign_variables,
    check_same_variables,
    model_variables,
    read_variables,
)
from keras_transformer.training.workers import Workers


class TrainingState:
    """The state of a model, its optimizer, its metrics and the callbacks.

    Args:
        model: A built and compiled `DistributedModel`.
        before: The callbacks whose state counts, those before the one that restores it.
        after: Those after it. `fit` appends its `History`.
        workers: The processes that train.
    """

    def __init__(
        self,
        model: Any,
        before: Sequence[keras.callbacks.Callback],
        after: Sequence[keras.callbacks.Callback],
        workers: Workers,
    ) -> None:
        self._model = model
        self._workers = workers
        self._callbacks = [*before, *after]
        history = getattr(model, "history", None)
        if isinstance(history, keras.callbacks.History) and history not in self._callbacks:
            self._callbacks.append(history)
        self._later = self._callbacks[len(before) :]
        self._at_start = attributes(self._callbacks)

    @property
    def updates(self) -> int:
        """Number of updates of the weights."""
        return int(keras.ops.convert_to_numpy(self._model.optimizer.iterations))

    def metrics(self) -> dict[str, np.ndarray]:
        """The metrics' values. All workers take part."""
        return read_variables("metrics", self._model.metrics_variables, self._workers)

    def arrays(self) -> dict[str, np.ndarray]:
        """The values of model and optimizer. All workers take part."""
        arrays = read_variables("model", model_variables(self._model), self._workers)
        return arrays | read_variables("optimizer", self._model.optimizer.variables, self._workers)

    def callbacks(self, arrays: dict[str, np.ndarray], ended: tuple[int, dict] | None) -> dict[str, Any]:
        """The callbacks' state; their arrays are added to `arrays`. `ended`: the epoch that ends now, and its logs."""
        return callbacks_state(self._callbacks, self._at_start, arrays, ended)

    def data(self, steps: int | None) -> dict[str, Any]:
        """What says which batches a position in the data stands for. `steps`: batches of an epoch, if known."""
        from keras_transformer.data.batching import EpochOrder  # needs TensorFlow, which importing this does not

        order = next((each.order for each in self._callbacks if isinstance(each, EpochOrder)), None)
        return {"steps_per_execution": self._model.steps_per_execution, "steps": steps, "order": order}

    def not_finite(self) -> str | None:
        """The first weight that is not finite."""
        for variable in self._model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable.value).astype("float32")).all():
                return variable.path
        return None

    def check(self, checkpoint: Checkpoint, steps: int | None) -> None:
        """Raises an error unless all of a checkpoint fits.

        Args:
            checkpoint: What was read.
            steps: Number of batches of an epoch, if known.

        Raises:
            ValueError: If it is of another model or optimizer, or in the middle of an epoch of other batches.
        """
        model, batch = self._model, checkpoint.facts["batch"]
        if not model.built or not model.optimizer.built:
            raise ValueError("A checkpoint needs a model that is built: call it, or `build`, before `fit`.")
        if batch != steps and batch % model.steps_per_execution:
            raise ValueError(
                f"{checkpoint.path} is of batch {batch}, and steps_per_execution={model.steps_per_execution} does not "
                f"divide that: compile with steps_per_execution={checkpoint.facts['steps_per_execution']}."
            )
        before, now = checkpoint.facts, self.data(steps)
        if batch and any(before.get(name) and now[name] and before[name] != now[name] for name in ("steps", "order")):
            raise ValueError(
                f"{checkpoint.path} is of batch {batch} of an epoch of other batches: go on with the data, seed, batch "
                "size and number of replicas that it was begun with, or remove it to begin at the checkpoint before."
            )
        for group, variables in self._groups(checkpoint).items():
            check_same_variables(checkpoint.path, group, variables, checkpoint.arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Gives model, optimizer, metrics and callbacks what a checkpoint holds of them."""
        with self._model.distribute_strategy.scope():
            for group, variables in self._groups(checkpoint).items():
                assign_variables(variables, list(arrays_of(group, checkpoint.arrays).values()), self._workers)
        restore_callbacks(self._callbacks, checkpoint.facts["callbacks"], checkpoint.arrays)

    def restore_later_callbacks(self, checkpoint: Checkpoint) -> None:
        """Restores those that have begun training since `restore`, in `on_train_begin` for example."""
        restore_callbacks(self._callbacks, checkpoint.facts["callbacks"], checkpoint.arrays, self._later)

    def had_ended(self, checkpoint: Checkpoint) -> bool:
        """Whether early stopping had ended the training."""
        return ended_training(self._callbacks, checkpoint.facts["callbacks"])

    def _groups(self, checkpoint: Checkpoint) -> dict[str, Sequence[keras.Variable]]:
        """The variables whose values a checkpoint holds; the metrics' in the middle of an epoch alone."""
        groups = {"model": model_variables(self._model), "optimizer": self._model.optimizer.variables}
        return groups | ({"metrics": self._model.metrics_variables} if checkpoint.facts["batch"] else {})
