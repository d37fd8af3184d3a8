"""Logical CPUs that stand for several GPUs."""

import tensorflow as tf


def strategy(replicas):
    """The sums are made on the first device. TensorFlow's collectives take a process' second group of replicas for its
    first one, so that a test would fail or not by what ran before it: whatever needs them has a process of its own.
    """
    if replicas == 1:
        return tf.distribute.get_strategy()
    devices = [f"CPU:{index}" for index in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
