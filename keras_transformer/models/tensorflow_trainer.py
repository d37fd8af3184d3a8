"""How `fit` and `evaluate` run on TensorFlow: on one device, several, or several machines, with and without XLA."""

import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.models.optimizer_update import OptimizerUpdate
from keras_transformer.models.replica_step import Result, StepFunction, Totals, in_each_replica

Tensor = Any

logger = logging.getLogger("keras_transformer")

_FIT = inspect.signature(keras.Model.fit)


class TensorFlowTrainer:
    """The parts of `DistributedModel` that replace those of Keras' TensorFlow trainer.

    A step is, on every replica, forward and backward (`StepFunction`), then the sum of gradients over all replicas,
    then the update (`OptimizerUpdate`). With `jit_compile=True` XLA compiles the first and the last, with `"auto"`
    where there is another device than the CPU.
    """

    def compile(self: Any, optimizer: Any = "rmsprop", jit_compile: bool | str = "auto", **kwargs: Any) -> None:
        super().compile(optimizer=optimizer, jit_compile=jit_compile, **kwargs)  # type: ignore[misc]
        self._jit_compile_asked = jit_compile
        self.optimizer_update = OptimizerUpdate(self.optimizer)
        self._batches_to_skip = 0
        if self.built:
            self.optimizer_update.build(self.trainable_variables)

    def get_compile_config(self: Any) -> dict[str, Any]:
        """Keras' own, with the `gradient_accumulation_steps` that `OptimizerUpdate` took out of the optimizer."""
        config = super().get_compile_config()  # type: ignore[misc]
        if config:
            config["jit_compile"] = self._jit_compile_asked  # "auto" may mean another thing where it is loaded
        if config and self.optimizer_update.accumulate > 1:
            optimizer = config["optimizer"]["config"]
            optimizer = optimizer.get("inner_optimizer", {"config": optimizer})["config"]
            optimizer["gradient_accumulation_steps"] = self.optimizer_update.accumulate
        return config

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.fit`. A dataset that draws its own order is told each epoch's number.

        Callbacks with a method `set_callbacks` get the list of all; those with `close` hear of the end, also by error.
        """
        call = _FIT.bind(self, *args, **kwargs)
        x: Any = call.arguments.get("x")
        callbacks = call.arguments.get("callbacks") or []
        if isinstance(callbacks, keras.callbacks.CallbackList):
            everyone = callbacks.callbacks
        else:
            everyone = callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        if hasattr(x, "set_epoch"):
            from keras_transformer.data.batching import EpochOrder

            everyone.insert(0, EpochOrder(x))
        call.arguments["callbacks"] = callbacks
        for callback in everyone:
            if hasattr(callback, "set_callbacks"):
                callback.set_callbacks(everyone)
        if hasattr(x, "element_spec"):
            call.arguments.setdefault("shuffle", False)  # Keras cannot shuffle a dataset, and warns at its own default
        try:
            return super().fit(*call.args[1:], **call.kwargs)  # type: ignore[misc]
        finally:
            for callback in everyone:
                if hasattr(callback, "close"):
                    callback.close()  # also where an exception ended the training

    def train_step(self: Any, data: Any) -> None:
        """One batch's slice, in a replica's context."""
        if not self.trainable_variables:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        step = StepFunction(self, training=True, jit_compile=self.jit_compile)
        result = step.run(data, self.optimizer_update.scale())
        gradients, totals = _sum_over_replicas((result.gradients, result.totals))
        norm = tf.linalg.global_norm(gradients)
        lost = self.optimizer_update.is_lost(totals, norm)
        state = [
            tf.where(lost, before, new) if new.dtype.is_floating else new
            for before, new in zip(_values(step.state_variables), self._merged_state(step, result), strict=True)
        ]

        def update(gradients: list[Tensor], totals: Totals, norm: Tensor, state: list[Tensor]) -> None:
            _assign(step.state_variables, state)
            self.optimizer_update(gradients, totals, norm)

        self._in_each_replica(update, self.jit_compile, gradients, totals, norm, state)

    def test_step(self: Any, data: Any) -> None:
        step = StepFunction(self, training=False, jit_compile=self.jit_compile)
        state = self._merged_state(step, step.run(data))
        self._in_each_replica(lambda state: _assign(step.state_variables, state), False, state)

    def _in_each_replica(self: Any, function: Callable[..., None], jit_compile: bool, *arguments: Any) -> None:
        def compiled(*arguments: Any) -> None:
            tf.function(function, jit_compile=True, autograph=False)(*arguments)

        in_each_replica(self.variables[0], compiled if jit_compile else function, *arguments)

    def _merged_state(self: Any, step: StepFunction, result: Result) -> list[Tensor]:
        """New values of the step's state, with the replicas' mean of what must be equal in all, moving averages say.

        A replica whose slice has no elements is left out of it: the mean of nothing is NaN. What is kept apart until it
        is read, as metrics are, stays so; seeds are equal anyway.
        """
        seeds = {id(generator.state) for generator in self._all_seed_generators()}
        state = list(result.state)
        shared = [
            place
            for place, variable in enumerate(step.state_variables)
            if variable.synchronization != "on_read" and id(variable) not in seeds
        ]
        if not shared or self.distribute_strategy.num_replicas_in_sync == 1:
            return state
        for place in shared:
            _check_mean_is_meant(step.state_variables[place])
        present = result.totals.elements > 0
        summands = []
        for place in shared:
            value = state[place] if state[place].dtype.is_floating else tf.cast(state[place], tf.int64)
            summands.append(tf.where(present, value, tf.zeros_like(value)))
        sums, count = _sum_over_replicas((summands, tf.cast(present, tf.int64)))
        before = _values(step.state_variables)
        for place, sum_ in zip(shared, sums, strict=True):
            divisor = tf.cast(tf.maximum(count, 1), sum_.dtype)
            mean = sum_ / divisor if sum_.dtype.is_floating else sum_ // divisor
            state[place] = tf.where(count > 0, tf.cast(mean, before[place].dtype), before[place])
        return state

    def make_train_function(self: Any, force: bool = False) -> None:
        if self.train_function is None or force:
            self._log_what_is_compiled()
            self.train_function = self._resuming(self._make_function(self.train_step))

    def make_test_function(self: Any, force: bool = False) -> None:
        if self.test_function is None or force:
            self.test_function = self._make_function(self.test_step)

    def _make_function(self: Any, step_function: Callable[[Any], None]) -> Callable[[Iterator], dict[str, Tensor]]:
        def one_step(data: Any) -> dict[str, Tensor]:
            self.distribute_strategy.run(step_function, args=(data,))
            return self.get_metrics_result()  # out of the replicas' context: over all replicas

        if not self.run_eagerly:
            one_step = tf.function(one_step, reduce_retracing=True, autograph=False)

        def function(iterator: Iterator) -> dict[str, Tensor]:
            if not self.run_eagerly:
                _trace_for_all_shapes(one_step, iterator)
            for step in range(self.steps_per_execution):
                try:
                    batch = next(iterator)
                except (StopIteration, tf.errors.OutOfRangeError):
                    if step == 0:
                        raise
                    break  # the data's last steps, fewer than `steps_per_execution`
                logs = one_step(batch)
            return logs

        return function

    def get_metrics_result(self: Any) -> dict[str, Tensor]:
        """Keras' own. Where all of an epoch's batches are lost (`OptimizerUpdate.is_lost`) its loss is NaN, not 0."""
        results = super().get_metrics_result()  # type: ignore[misc]
        skipped = tf.executing_eagerly() and "loss" in results and self.optimizer_update.last_is_skipped()
        if skipped and not _values([self._loss_tracker.count])[0]:
            results["loss"] = tf.constant(math.nan)
        return results

    def skip_batches(self: Any, count: int) -> None:
        """Has the next `count` training batches drawn and dropped: they were trained before an interruption."""
        self._batches_to_skip = count

    def _resuming(self: Any, function: Callable[[Iterator], Any]) -> Callable[[Iterator], Any]:
        def train_or_skip(iterator: Iterator) -> Any:
            if not self._batches_to_skip:
                return function(iterator)
            for step in range(min(self.steps_per_execution, self._batches_to_skip)):
                try:
                    next(iterator)
                except (StopIteration, tf.errors.OutOfRangeError):
                    if step == 0:
                        raise
                    break  # the data's last steps, as above
                self._batches_to_skip -= 1
            return self.get_metrics_result()

        return train_or_skip

    def training_statistics(self: Any) -> dict[str, float]:
        """What training did so far, summed over all replicas, and its last update.

        Returns:
            `updates`; `loss_sum`, `real_elements` (the sums of weighted losses and of weights) and `elements` (padding
            included), of all batches but those that a skipped update left without a finite loss; `learning_rate` and
            `gradient_norm` (before clipping) of the last update; and, where the loss is scaled, `loss_scale` and
            `skipped_updates`.
        """
        return self.optimizer_update.statistics()

    def _log_what_is_compiled(self: Any) -> None:
        replicas = self.distribute_strategy.num_replicas_in_sync
        compiled, plain = "XLA compiles each replica's forward, backward and update", "plain graphs, no XLA"
        what = compiled if self.jit_compile else plain
        logger.info("training on %d replica%s in %s: %s", replicas, "s"[: replicas > 1], self.dtype_policy.name, what)

    def _resolve_auto_jit_compile(self: Any) -> bool:
        """XLA wherever there is another device than the CPU, also under a strategy."""
        if all(device.device_type == "CPU" for device in tf.config.list_physical_devices()):
            return False
        return all(layer.supports_jit for layer in self._flatten_layers())

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        """Makes all variables before the first step, from one replica's slice of a batch."""
        with self.distribute_strategy.scope():
            metrics = self._compile_metrics
            if not all(layer.built for layer in self._flatten_layers()) or (metrics and not metrics.built):
                batch = data_batch if iterator is None else next(next(iter(iterator))[2])
                self._build_from(keras.tree.map_structure(self._first_replicas, batch))
            self.optimizer_update.build(self.trainable_variables)

    def _first_replicas(self: Any, value: Any) -> Any:
        if value is None:
            return None
        value = self.distribute_strategy.experimental_local_results(value)[0]
        return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))

    def _build_from(self: Any, batch: Any) -> None:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self.compute_output_spec(x) if self.built else self(x)
        if self._compile_metrics is not None and y is not None:
            self._compile_metrics.build(y, y_pred)


def _sum_over_replicas(values: Any) -> Any:
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    flat = tf.nest.flatten(values)
    for dtype in dict.fromkeys(value.dtype for value in flat):  # what is reduced at once must be of one type
        places = [place for place, value in enumerate(flat) if value.dtype == dtype]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [flat[place] for place in places])
        for place, sum_ in zip(places, sums, strict=True):
            flat[place] = sum_
    return tf.nest.pack_sequence_as(values, flat)


def _trace_for_all_shapes(function: Any, data: Any) -> None:
    """Traces `function` once for whatever the data may give, rather than for its first batch and then again."""
    if not hasattr(data, "element_spec") or function.experimental_get_tracing_count():
        return  # `train_on_batch` hands on the batch alone
    shapes = [spec.shape for spec in tf.nest.flatten(data.element_spec, expand_composites=True)]
    if all(shape.rank is not None for shape in shapes):
        function.get_concrete_function(data.element_spec)


def _check_mean_is_meant(variable: keras.Variable) -> None:
    if variable.aggregation in ("sum", "only_first_replica"):
        raise ValueError(
            f"{variable.path} has aggregation={variable.aggregation!r}, and a step on several replicas ends in their "
            "mean: leave `aggregation` out; or, for a sum, keep it apart until it is read, as metrics are, by "
            "`keras.Variable(..., aggregation='sum', synchronization='on_read')`."
        )


def _values(variables: list[keras.Variable]) -> list[Tensor]:
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def _assign(variables: list[keras.Variable], values: list[Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
