"""Forward and backward of one replica, as a pure function that XLA can have whole."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

Tensor = Any

# Replica r draws its random numbers from the seeds moved by r times this; replica 0 draws what one device draws.
SEED_STRIDE = 1_000_003


class Totals(NamedTuple):
    """What a batch adds up to; sums over replicas and over batches of it mean the same."""

    weight: Tensor  # of the elements: the number of real ones where weights are 0 and 1
    loss: Tensor  # sum of weight times loss
    elements: Tensor  # number of elements, padding included


class Result(NamedTuple):
    """What a replica's step gives: nothing has been assigned yet."""

    gradients: list[Tensor]  # of the weighted sum of losses, one for each trainable variable; none in evaluation
    totals: Totals
    state: list[Tensor]  # new values of `StepFunction.state_variables`


class StepFunction:
    """Forward and, in training, backward of a model on one replica's slice of a batch.

    Reads the variables' values where it is called, and computes with them alone: `run` assigns nothing. Metrics,
    dropouts' seeds and moving averages come back as values in `Result.state`, for the variables that are listed in
    `state_variables` after `run`.

    Args:
        model: A `DistributedModel`.
        training: Whether to train or to evaluate.
        jit_compile: Whether XLA compiles it.
    """

    def __init__(self, model: Any, training: bool, jit_compile: bool) -> None:
        self.model = model
        self.training = training
        self.jit_compile = jit_compile
        self.state_variables: list[keras.Variable] = []

    def run(self, data: Any, scale: Tensor | None = None) -> Result:
        """One step.

        Args:
            data: `x, y` and maybe `sample_weight`.
            scale: Of the loss, for half precision. The gradients come back without it.
        """
        context = tf.distribute.get_replica_context()
        known = self.model.variables
        values = [tf.convert_to_tensor(variable.value) for variable in known]
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        step = tf.function(self._step, jit_compile=True, autograph=False) if self.jit_compile else self._step
        gradients, totals, state = step(values, data, scale, replica)
        return Result(list(gradients), totals, list(state))

    def _step(self, values: Sequence[Tensor], data: Any, scale: Tensor | None, replica: Tensor) -> tuple:
        model = self.model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        places = {id(variable): place for place, variable in enumerate(model.variables)}
        watched = [values[places[id(variable)]] for variable in model.trainable_variables]
        seeds = {id(generator.state) for generator in model._all_seed_generators()}
        offset = tf.stack([replica * SEED_STRIDE, 0]) if seeds else None
        with _Scope(model.variables, values, seeds, offset) as scope, tf.GradientTape() as tape:
            tape.watch(watched)
            y_pred = model(x, training=self.training)
            losses, weights = model.loss_values(y, y_pred, sample_weight)
            totals = Totals(tf.reduce_sum(weights), tf.reduce_sum(losses * weights), tf.size(losses, tf.int64))
            objective = totals.loss
            for loss in model.losses if self.training else ():
                # Times the weight, since the sum over replicas and batches will be divided by the sum of the weights.
                objective += tf.cast(loss, objective.dtype) * totals.weight
            model.record(x, y, y_pred, sample_weight, losses, weights)
            if scale is not None:
                # Half precision has the range for the gradient of a mean, not for that of a sum.
                scale = tf.cast(scale, objective.dtype) / tf.maximum(totals.weight, 1)
                objective *= scale
        gradients = _dense(tape.gradient(objective, watched), model.trainable_variables) if self.training else []
        if scale is not None:
            gradients = [gradient / tf.cast(scale, gradient.dtype) for gradient in gradients]
        if gradients and model.distribute_strategy.num_replicas_in_sync > 1:
            # Of a slice without elements: where a layer takes a mean over the rows they are NaN.
            gradients = tf.cond(totals.elements > 0, lambda: gradients, lambda: list(map(tf.zeros_like, gradients)))
        self.state_variables = scope.updated
        return gradients, totals, scope.new_values()


class _Scope(keras.StatelessScope):
    """Gives every variable its value, and seeds one of the replica's own; keeps what layers and metrics assign."""

    def __init__(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor], seeds: set[int], offset: Tensor | None
    ) -> None:
        self.seeds = seeds
        self.offset = offset
        self.updated: list[keras.Variable] = []
        moved = [
            value + self._offset(value) if id(variable) in seeds else value
            for variable, value in zip(variables, values, strict=True)
        ]
        super().__init__(list(zip(variables, moved, strict=True)), collect_losses=True)

    def add_update(self, update: tuple[keras.Variable, Tensor]) -> None:
        if all(update[0] is not variable for variable in self.updated):
            self.updated.append(update[0])
        super().add_update(update)

    def new_values(self) -> list[Tensor]:
        values = [self.get_current_value(variable) for variable in self.updated]
        return [
            value - self._offset(value) if id(variable) in self.seeds else value
            for variable, value in zip(self.updated, values, strict=True)
        ]

    def _offset(self, value: Tensor) -> Tensor:
        return tf.cast(self.offset, value.dtype)


def _dense(gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Tensor]:
    """Gradients as tensors; zeros, and a warning, where the loss does not depend on a variable."""
    unused = [variable.path for variable, gradient in zip(variables, gradients, strict=True) if gradient is None]
    if unused:
        warnings.warn(f"The loss does not depend on {', '.join(unused)}: left as they are.", stacklevel=2)
    return [
        tf.zeros(variable.shape, variable.dtype) if gradient is None else tf.convert_to_tensor(gradient)
        for variable, gradient in zip(variables, gradients, strict=True)
    ]


def in_each_replica(anchor: keras.Variable, function: Callable[..., None], *arguments: Any) -> None:
    """Runs a function that assigns, where every variable means this replica's own copy of it.

    To be called in a replica's context.

    Args:
        anchor: A variable of the model.
        function: Assigns to any number of variables.
        *arguments: Structures of tensors, handed on.
    """

    def update(strategy: Any, *arguments: Any) -> None:
        def on_this_replica(_: Any, *arguments: Any) -> None:
            function(*arguments)

        strategy.extended.update(anchor.value, on_this_replica, args=arguments, group=False)

    tf.distribute.get_replica_context().merge_call(update, args=arguments)
