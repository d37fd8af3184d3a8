"""A `keras.Model` whose `fit` is right and compiled on any number of devices, and whose files keep the seeds."""

from typing import Any

import keras

Tensor = Any

_BASES: tuple[type, ...] = (keras.Model,)
if keras.backend.backend() == "tensorflow":
    from keras_transformer.models.tensorflow_trainer import TensorFlowTrainer

    _BASES = (TensorFlowTrainer, keras.Model)


class DistributedModel(*_BASES):  # type: ignore[misc]
    """A `keras.Model` for losses that are means over real elements, tokens for example.

    The training loss is the sum of the unreduced losses, each times its `sample_weight`, divided by the sum of the
    weights over all replicas, whatever `reduction` the loss was made with. The reported loss is the same mean over
    the epoch, without regularizers and `add_loss`, which count once in the gradient. One loss for one output; derive a
    class and write `call`, inputs and outputs are not taken. Model files and checkpoints hold the state of the
    dropouts' seeds, so that a loaded model draws the masks that the saved one would have drawn (Keras' own files do not
    hold them).

    Example:
        >>> class Line(DistributedModel):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense = keras.layers.Dense(1)
        ...     def call(self, x):
        ...         return self.dense(x)
        >>> model = Line()
        >>> model.compile(optimizer="adam", loss="mse")
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or "inputs" in kwargs or "outputs" in kwargs:
            # Keras would put `Functional` among this class' bases, for every model that is derived from it.
            raise TypeError(
                f"Derive a class from {type(self).__name__} and write `call`: it takes no inputs and outputs."
            )
        super().__init__(**kwargs)

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, loss_weights: Any = None, **kwargs: Any) -> None:
        """As `keras.Model.compile`, for one loss.

        Raises:
            ValueError: If there is no loss or more than one, or if `loss_weights` is given.
        """
        if loss is None or isinstance(loss, (dict, list, tuple)) or loss_weights is not None:
            raise ValueError(
                f"{type(self).__name__} takes one loss for one output, and no `loss_weights`. "
                f"Received: loss={loss!r}, loss_weights={loss_weights!r}"
            )
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def loss_values(self, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The compiled loss of every element, unreduced, and every element's weight, in one shape."""
        import tensorflow as tf

        if y is None:
            raise ValueError(f"{type(self).__name__} needs labels: `fit(x, y)`, or a dataset of (x, y, sample_weight).")
        values = tf.convert_to_tensor(unreduced_loss(self.loss, y, y_pred))
        mask = getattr(y_pred, "_keras_mask", None)
        if sample_weight is None and mask is None:
            return values, tf.ones_like(values)
        weights = tf.ones_like(values) if sample_weight is None else tf.cast(sample_weight, values.dtype)
        if weights.shape.rank > values.shape.rank:
            raise ValueError(
                f"`sample_weight` must not have more axes than the losses. Received: sample_weight={weights.shape}, "
                f"losses={values.shape}"
            )
        while weights.shape.rank < values.shape.rank:
            weights = tf.expand_dims(weights, -1)  # (B,), a weight a row, as Keras and `class_weight` give it
        weights = tf.broadcast_to(weights, tf.shape(values))  # (B, 1) weighs, and counts, each of a row's elements
        if mask is not None:  # Keras' losses and metrics leave out what an implicit mask hides
            weights = weights * tf.cast(mask, values.dtype)
        return values, weights

    def record(
        self, x: Any, y: Tensor, y_pred: Tensor, sample_weight: Any, values: Tensor, weights: Tensor
    ) -> dict[str, Tensor]:
        """Updates the loss, as a mean over real elements, and the compiled metrics."""
        self._loss_tracker.update_state(values, sample_weight=weights)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model. Keras does not do so by itself where `compile` is a class' own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)

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


def unreduced_loss(loss: Any, y: Tensor, y_pred: Tensor) -> Tensor:
    """A compiled loss of every element, in float32 or better, called as Keras calls it."""
    import tensorflow as tf

    loss = keras.losses.get(loss)
    precise = keras.backend.result_type(y_pred.dtype, "float32")
    y_pred = tf.cast(y_pred, precise)
    if isinstance(loss, keras.losses.Loss):
        return loss.call(y, y_pred)
    y = tf.cast(y, precise)
    if y.shape.rank == y_pred.shape.rank - 1 and y_pred.shape[-1] == 1:
        y = tf.expand_dims(y, -1)  # (B,) beside (B, 1) would broadcast to (B, B)
    return loss(y, y_pred)
