"""The processes that train one model together under `MultiWorkerMirroredStrategy`; one process otherwise."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class Workers:
    """Who writes, and how all agree.

    Args:
        strategy: The model's `distribute_strategy`, or `None`.

    Attributes:
        count: Number of processes.
        is_chief: Whether this is the one that writes files.
    """

    def __init__(self, strategy: Any = None) -> None:
        self._strategy = strategy
        resolver: Any = getattr(strategy, "cluster_resolver", None)
        cluster = resolver.cluster_spec().as_dict() if resolver is not None else {}
        self.count = max(1, sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")))
        self.is_chief = (
            self.count == 1
            or resolver.task_type == "chief"
            or ("chief" not in cluster and resolver.task_type == "worker" and resolver.task_id == 0)
        )

    def any(self, *flags: bool) -> list[bool]:
        """Of each flag, whether it is set on any worker. All workers have to call it at the same point."""
        if self.count == 1:
            return list(flags)
        return [bool(total > 0) for total in self._sum(flags)]

    def from_chief(self, number: int) -> int:
        """The chief's number, on every worker."""
        if self.count == 1:
            return number
        return int(self._sum([number if self.is_chief else 0])[0])

    def _sum(self, numbers: Sequence[int]) -> np.ndarray:
        import tensorflow as tf

        first = True

        def value(_: Any) -> tf.Tensor:  # once for each replica of this process, of which the first has the numbers
            nonlocal first
            mine, first = (numbers if first else [0] * len(numbers)), False
            return tf.constant([int(number) for number in mine], tf.int64)

        values = self._strategy.experimental_distribute_values_from_function(value)
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None).numpy()
