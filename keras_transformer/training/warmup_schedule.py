"""The paper's learning rate: up for `warmup_steps` updates, then down with the square root."""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.arguments import check_positive

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """rate(step) = scale * d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5), n = step + 1.

    `n` counts updates from 1, as in the paper; Keras counts from 0, so the first update's rate is above 0.

    Args:
        d_model: The model's width.
        warmup_steps: Number of updates until the rate is at its highest.
        scale: A factor; 1 in the paper.

    Call arguments:
        step: Number of updates made, an integer or a float, of Python, NumPy or a tensor.

    Returns:
        The rate of the next update, float32.

    Raises:
        ValueError: If an argument has an impossible value.

    Example:
        >>> optimizer = keras.optimizers.Adam(WarmupSchedule(512), beta_2=0.98, epsilon=1e-9)

    Reference:
        Vaswani et al. (2017), section 5.3, equation 3.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        super().__init__()
        self.d_model = check_positive("d_model", d_model)
        self.warmup_steps = check_positive("warmup_steps", warmup_steps)
        if not scale > 0:
            raise ValueError(f"`scale` must be above 0. Received: scale={scale!r}")
        self.scale = scale

    def __call__(self, step: int | float | Tensor) -> Tensor:
        n = ops.cast(step, "float32") + 1.0
        return self.scale * self.d_model**-0.5 * ops.minimum(n**-0.5, n * self.warmup_steps**-1.5)

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


def transformer_optimizer(
    d_model: int, warmup_steps: int = 4000, scale: float = 1.0, **kwargs: Any
) -> keras.optimizers.Optimizer:
    """Adam as in the paper: beta_1 0.9, beta_2 0.98, epsilon 1e-9, and `WarmupSchedule`.

    Args:
        d_model, warmup_steps, scale: As in `WarmupSchedule`.
        **kwargs: Further arguments of `keras.optimizers.Adam`, such as `global_clipnorm`.

    Reference:
        Vaswani et al. (2017), section 5.3.
    """
    defaults = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}
    return keras.optimizers.Adam(WarmupSchedule(d_model, warmup_steps, scale), **{**defaults, **kwargs})
