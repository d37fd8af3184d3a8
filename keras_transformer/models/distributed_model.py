"""A `keras.Model` whose loss is a mean over real elements, whatever the replicas, and whose files keep the seeds."""

from typing import Any

import keras

Tensor = Any


class TensorFlowSteps:
    """`train_step` and `test_step` on TensorFlow; other backends keep Keras' own, which have another shape."""

    def train_step(self: Any, data: Any) -> dict[str, Tensor]:
        import tensorflow as tf

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            values, weights = self.loss_values(y, y_pred, sample_weight)
            # The sum of this replica's losses over the number of real elements in all replicas: optimizers add the
            # replicas' gradients up, and the sum is that of one device on the whole batch.
            loss = tf.math.divide_no_nan(tf.reduce_sum(values * weights), all_replicas_sum(tf.reduce_sum(weights)))
            scaled_loss = self.optimizer.scale_loss(loss + once_per_step(self.losses, loss.dtype))
        gradients = tape.gradient(scaled_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return self.record(x, y, y_pred, sample_weight, values, weights)

    def test_step(self: Any, data: Any) -> dict[str, Tensor]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        values, weights = self.loss_values(y, y_pred, sample_weight)
        return self.record(x, y, y_pred, sample_weight, values, weights)

    def loss_values(self: Any, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The compiled loss of every element, unreduced, and every element's weight, in one shape."""
        import tensorflow as tf

        if isinstance(self.loss, (dict, list, tuple)):
            raise ValueError(f"{type(self).__name__} takes one loss for one output. Received: loss={self.loss!r}")
        loss = keras.losses.get(self.loss)
        values = loss.call(y, y_pred) if isinstance(loss, keras.losses.Loss) else loss(y, y_pred)
        values = tf.convert_to_tensor(values)
        if sample_weight is None:
            return values, tf.ones_like(values)
        weights = tf.cast(sample_weight, values.dtype)
        if weights.shape.rank != values.shape.rank:
            raise ValueError(
                f"`sample_weight` must have the losses' shape, {values.shape}. Received: shape={weights.shape}"
            )
        return values, tf.broadcast_to(weights, tf.shape(values))  # (B, 1) weighs, and counts, each of a row's elements

    def record(
        self: Any, x: Any, y: Tensor, y_pred: Tensor, sample_weight: Any, values: Tensor, weights: Tensor
    ) -> dict[str, Tensor]:
        """Updates the loss, as a mean over real elements, and the compiled metrics."""
        self._loss_tracker.update_state(values, sample_weight=weights)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def all_replicas_sum(value: Tensor) -> Tensor:
    """The sum of a replica's value over all replicas."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def once_per_step(losses: list[Tensor], dtype: Any) -> Tensor:
    """Regularizers' and `add_loss`'s sum, shared out over the replicas, so that it counts once."""
    import tensorflow as tf

    if not losses:
        return tf.zeros((), dtype)
    return (
        tf.add_n([tf.cast(loss, dtype) for loss in losses]) / tf.distribute.get_replica_context().num_replicas_in_sync
    )


_BASES: tuple[type, ...] = (TensorFlowSteps, keras.Model) if keras.backend.backend() == "tensorflow" else (keras.Model,)


class DistributedModel(*_BASES):  # type: ignore[misc]
    """A `keras.Model` for losses that are means over real elements, tokens for example.

    The training loss is the sum of the unreduced losses, each times its `sample_weight`, divided by the sum of the
    weights over all replicas, whatever `reduction` the loss was made with. The reported loss is the same mean over
    the epoch. Model files and checkpoints hold the state of the dropouts' seeds, so that a loaded model draws the
    masks that the saved one would have drawn (Keras' own files do not hold them).

    Example:
        >>> class MyModel(DistributedModel): ...
        >>> model = MyModel()
        >>> model.compile(optimizer="adam", loss="mse")
        >>> model.fit(dataset)
    """

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        for index, generator in enumerate(self._all_seed_generators()):
            store[f"seed_{index}"] = keras.ops.convert_to_numpy(generator.state)

    def load_own_variables(self, store: Any) -> None:
        keys = list(store.keys())  # an H5 store can be asked for its keys, not iterated
        seeds = {key for key in keys if key.startswith("seed_")}
        super().load_own_variables({key: store[key] for key in keys if key not in seeds})
        for index, generator in enumerate(self._all_seed_generators()):
            if f"seed_{index}" in seeds:  # files of plain Keras models hold none
                generator.state.assign(store[f"seed_{index}"])

    def _all_seed_generators(self) -> list[keras.random.SeedGenerator]:
        return [generator for layer in self._flatten_layers() for generator in layer._seed_generators]
