"""Dropout: in training, elements are zeroed at random and the others scaled up, so that the expectation stays."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.layers.arguments import check_probability
from keras_transformer.layers.random_bits import keys_of, mix

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Layer):
    """`keras.layers.Dropout` with cheaper random numbers.

    Element i stays if h(i) < (1 - rate) 2^16, where h is a hash of the element's number under a key that the seed
    generator gives anew at every call. Keras asks the backend's counter-based generator for a float an element, which
    XLA compiles to far more work on a CPU: a sixth of a training step of the small model. The masks are a function of
    the seed's state alone, the same in eager mode, in a graph and under XLA.

    Args:
        rate: Probability of dropping an element, realized in steps of 2^-16; the least is 2^-16.
        seed: Seed of the generator.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: Floating point, of rank 1 or more.
        training: Whether elements are dropped.

    Returns:
        A tensor of the inputs' shape and dtype: 0 where an element was dropped, else the element / (1 - rate).

    Raises:
        ValueError: If `rate` is not a probability below 1.

    Masking:
        None needed; an implicit mask passes through.

    Example:
        >>> output = Dropout(0.1, seed=1)(np.ones((2, 5, 16), "float32"), training=True)

    Reference:
        Srivastava et al. (2014), "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"; the hash's
        multipliers: C. Wellons' search for 32-bit hash functions of low bias (2018).
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.rate = check_probability("rate", rate)
        self.seed = seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self._build_at_init()

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if not training or not self.rate:
            return inputs
        # In rows: XLA:CPU sums the gradient of what came before over all rows several times faster than over axes.
        rows = ops.reshape(inputs, (-1, inputs.shape[-1] or ops.shape(inputs)[-1]))
        keep = keep_mask(ops.shape(rows), self.rate, self.seed_generator.next())
        dropped = ops.where(keep, rows * (1 / (1 - self.rate)), ops.zeros((), dtype=rows.dtype))
        return ops.reshape(dropped, ops.shape(inputs))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


def keep_mask(shape: tuple, rate: float, seed_state: Tensor) -> Tensor:
    """Which elements stay.

    Args:
        shape: `(rows, columns)`, each a Python integer or a scalar integer tensor.
        rate: Probability of dropping an element, 0 <= rate < 1.
        seed_state: `(2,)`, integer, from `keras.random.SeedGenerator.next()`: a seed and the number of the call.

    Returns:
        `shape`, bool, `True` where an element stays.
    """
    size = shape[0] * shape[1]
    state = ops.cast(seed_state, "uint32")
    keys = keys_of(state[0], state[1])
    numbers = ops.cast(ops.arange((size + 1) // 2, dtype="int32"), "uint32")
    words = ops.view(ops.expand_dims(mix(numbers, *keys), -1), "uint16")  # (n, 1) -> (n, 2): two halves
    limit = np.uint16(min(max(round((1 - rate) * 2**16), 1), 2**16 - 1))
    halves = ops.reshape(words, (-1,))
    return ops.reshape((halves if isinstance(size, int) and size % 2 == 0 else halves[:size]) < limit, shape)
