"""From the sum of all replicas' gradients to new weights: accumulation, loss scale, clipping, optimizer, EMA."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.models.adam_step import adam_step, is_plain_adam
from keras_transformer.models.replica_step import Totals

Tensor = Any

# Keras' optimizers that update one variable at a time leave these to their base class.
_WHOLE_UPDATES = ("apply", "_backend_apply_gradients", "_backend_update_step", "_apply_weight_decay")


class OptimizerUpdate:
    """What becomes of gradients once they are summed over all replicas.

    gradient = sum of the batches' gradient sums / sum of their weights, then unscaled already, then clipped, then to
    the optimizer. Accumulation, clipping, EMA and loss scale are those of the optimizer's own arguments;
    `gradient_accumulation_steps` is taken out of it, so that its `iterations` count updates, not batches. All state
    is in the optimizer's variables.

    Args:
        optimizer: A compiled optimizer, maybe a `LossScaleOptimizer`.

    Raises:
        ValueError: If the optimizer's update is not one variable at a time (Nadam, Muon).
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer) -> None:
        self.scaler = optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else None
        self.optimizer = self.scaler.inner_optimizer if self.scaler else optimizer
        if self.optimizer._distribution_strategy is not tf.distribute.get_strategy():
            raise ValueError("Make the optimizer, and compile, where the model is made: inside `strategy.scope()`.")
        for name in _WHOLE_UPDATES:
            if getattr(type(self.optimizer), name) is not getattr(keras.optimizers.Optimizer, name):
                raise ValueError(
                    f"{type(self.optimizer).__name__} does not update one variable at a time: take another optimizer, "
                    "Adam or AdamW for example."
                )
        # A second `compile` with the same optimizer finds here what the first one took out.
        if not hasattr(self.optimizer, "batches_per_update"):
            self.optimizer.batches_per_update = self.optimizer.gradient_accumulation_steps or 1
            self.optimizer.gradient_accumulation_steps = None
        self.accumulate: int = self.optimizer.batches_per_update
        self.variables: list[keras.Variable] = []

    def build(self, trainable_variables: Sequence[keras.Variable]) -> None:
        """Makes the optimizer's variables and what is kept beside them."""
        self.variables = list(trainable_variables)
        outer = self.scaler or self.optimizer
        if not outer.built:
            outer.build(self.variables)
        if not hasattr(self.optimizer, "real_elements"):
            optimizer = self.optimizer
            for name, dtype in _STATISTICS.items():
                setattr(optimizer, name, optimizer.add_variable((), dtype=dtype, name=name))
            if self.accumulate > 1:
                optimizer.batches_accumulated = optimizer.add_variable((), dtype="int32", name="batches_accumulated")
                optimizer.weight_accumulated = optimizer.add_variable((), dtype="float32", name="weight_accumulated")
                optimizer.gradients_accumulated = [
                    optimizer.add_variable_from_reference(variable, name="accumulated") for variable in self.variables
                ]
        if self.optimizer.use_ema and not self.optimizer.iterations.numpy():
            # `fit` ends in the averages, also where it made no update: until there is one they are the weights.
            for average, variable in zip(self.optimizer._model_variables_moving_average, self.variables, strict=True):
                average.assign(variable)

    def scale(self) -> Tensor | None:
        """The loss scale of the next batch, `None` if the loss is not scaled."""
        if self.scaler:
            return tf.convert_to_tensor(self.scaler.dynamic_scale)
        factor = self.optimizer.loss_scale_factor
        return None if factor is None else tf.constant(factor, "float32")

    def statistics(self) -> dict[str, float]:
        """See `DistributedModel.training_statistics`."""
        optimizer = self.optimizer
        variables = {
            "updates": optimizer.iterations,
            "loss_sum": optimizer.loss_sum,
            "real_elements": optimizer.real_elements,
            "elements": optimizer.elements,
            "learning_rate": optimizer.last_learning_rate,
            "gradient_norm": optimizer.gradient_norm,
        }
        if self.scaler is not None:
            variables |= {"loss_scale": self.scaler.dynamic_scale, "skipped_updates": optimizer.skipped_updates}
        return {name: variable.numpy().item() for name, variable in variables.items()}

    def is_lost(self, totals: Totals, norm: Tensor) -> Tensor:
        """Whether a batch has neither a finite loss nor a finite gradient, and its update will be skipped.

        It counts in no figure and moves no average: these would never be finite again, although the weights are.

        Args:
            totals: Over all replicas.
            norm: The gradients' global norm.
        """
        if self.scaler is None:
            return tf.constant(False)
        return tf.logical_not(tf.math.is_finite(norm) | tf.math.is_finite(totals.loss))

    def last_is_skipped(self) -> bool:
        """Whether the last update was skipped."""
        return bool(self.scaler and self.variables) and not math.isfinite(self.optimizer.gradient_norm.numpy())

    def __call__(self, gradients: Sequence[Tensor], totals: Totals, norm: Tensor) -> None:
        """Takes in a batch: assigns to all of this replica's variables.

        Args:
            gradients: Of the weighted sum of losses over all replicas, without the loss scale.
            totals: Over all replicas.
            norm: The gradients' global norm, from outside this function: on the CPU XLA is slow at such sums.
        """
        optimizer = self.optimizer
        lost = self.is_lost(totals, norm)
        counted = Totals(*(tf.where(lost, tf.zeros_like(total), total) for total in totals))
        optimizer.loss_sum.assign_add(tf.cast(counted.loss, "float64"))
        optimizer.real_elements.assign_add(tf.cast(counted.weight, "float64"))
        optimizer.elements.assign_add(counted.elements)
        weight = tf.cast(totals.weight, "float32")
        if self.accumulate == 1:
            self._update([_mean(gradient, weight) for gradient in gradients], _mean(norm, weight))
            return
        for sum_, gradient in zip(optimizer.gradients_accumulated, gradients, strict=True):
            sum_.assign_add(gradient)
        optimizer.weight_accumulated.assign_add(weight)
        optimizer.batches_accumulated.assign_add(1)
        due = tf.equal(optimizer.batches_accumulated, self.accumulate)
        tf.cond(due, self._update_and_reset, lambda: None)

    def _update_and_reset(self) -> None:
        optimizer = self.optimizer
        weight = optimizer.weight_accumulated.value
        gradients = [_mean(sum_.value, weight) for sum_ in optimizer.gradients_accumulated]
        self._update(gradients, tf.linalg.global_norm(gradients))
        for variable in (
            *optimizer.gradients_accumulated,
            optimizer.weight_accumulated,
            optimizer.batches_accumulated,
        ):
            variable.assign(keras.ops.zeros_like(variable))

    def _update(self, gradients: list[Tensor], norm: Tensor) -> None:
        """One update; none, and a smaller scale, where a scaled gradient is not finite."""
        self.optimizer.gradient_norm.assign(tf.cast(norm, "float32"))
        if self.scaler is None:
            self._apply(gradients)
            return
        scaler = self.scaler

        def grow() -> None:
            scaler.step_counter.assign(0)
            scaler.dynamic_scale.assign(scaler.dynamic_scale * 2.0)

        def apply() -> None:
            self._apply(gradients)
            scaler.step_counter.assign_add(1)
            tf.cond(tf.equal(scaler.step_counter, scaler.dynamic_growth_steps), grow, lambda: None)

        def skip() -> None:
            self.optimizer.skipped_updates.assign_add(1)
            scaler.step_counter.assign(0)
            scaler.dynamic_scale.assign(scaler.dynamic_scale * 0.5)

        tf.cond(tf.math.is_finite(norm), apply, skip)

    def _apply(self, gradients: list[Tensor]) -> None:
        """What `keras.Optimizer.apply` does, in its order, on one replica's copies of the variables."""
        optimizer = self.optimizer
        rate = optimizer.learning_rate
        optimizer.last_learning_rate.assign(tf.cast(rate, "float32"))
        gradients = optimizer._clip_gradients(gradients)
        if optimizer.weight_decay is not None:
            for variable in filter(optimizer._use_weight_decay, self.variables):
                decay = keras.ops.cast(optimizer.weight_decay * rate, variable.dtype)
                variable.assign_sub(variable * decay)
        update_step = functools.partial(adam_step, optimizer) if is_plain_adam(optimizer) else optimizer.update_step
        for gradient, variable in zip(gradients, self.variables, strict=True):
            update_step(gradient, variable, rate)
        if optimizer.use_ema:
            optimizer._update_model_variables_moving_average(self.variables)
            if optimizer.ema_overwrite_frequency:
                due = tf.equal((optimizer.iterations + 1) % optimizer.ema_overwrite_frequency, 0)
                tf.cond(due, self._overwrite_with_average, lambda: None)
        for variable in self.variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        optimizer._iterations.assign_add(1)

    def _overwrite_with_average(self) -> None:
        for variable, average in zip(self.variables, self.optimizer._model_variables_moving_average, strict=True):
            variable.assign(average)


_STATISTICS = {
    "real_elements": "float64",
    "elements": "int64",
    "loss_sum": "float64",
    "gradient_norm": "float32",
    "last_learning_rate": "float32",
    "skipped_updates": "int64",
}


def _mean(gradient: Tensor, weight: Tensor) -> Tensor:
    return tf.math.divide_no_nan(gradient, tf.cast(weight, gradient.dtype))
