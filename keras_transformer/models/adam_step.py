"""Adam's update of one variable, as one operation."""

from typing import Any

import keras
import tensorflow as tf

Tensor = Any


def is_plain_adam(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether `adam_step` does what the optimizer's own `update_step` does: Adam and AdamW without amsgrad."""
    update_step = getattr(type(optimizer), "update_step", None)
    return update_step is keras.optimizers.Adam.update_step and not optimizer.amsgrad


def adam_step(optimizer: keras.optimizers.Adam, gradient: Tensor, variable: keras.Variable, rate: Tensor) -> None:
    """Does what `optimizer.update_step` does, in one pass over the variable and its two moments.

    Keras' own is 30 operations for every variable: half of the time until the first step.

    Args:
        optimizer: One of which `is_plain_adam` is true, and which has its variables.
        gradient: In the variable's shape.
        variable: One of those that are trained.
        rate: The learning rate, a scalar.

    Reference:
        Kingma & Ba (2015), section 2: algorithm 1 in the order given below it; epsilon is its epsilon-hat.
    """
    dtype = variable.dtype
    index = optimizer._get_variable_index(variable)
    step = tf.cast(optimizer.iterations + 1, dtype)
    beta_1, beta_2 = (tf.constant(beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.value.handle,
        m=optimizer._momentums[index].value.handle,
        v=optimizer._velocities[index].value.handle,
        beta1_power=beta_1**step,
        beta2_power=beta_2**step,
        lr=tf.cast(rate, dtype),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=tf.constant(optimizer.epsilon, dtype),
        grad=tf.cast(gradient, dtype),
    )
