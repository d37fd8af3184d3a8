"""What every test stands on: a quiet TensorFlow, and logical CPUs that stand for several devices."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")

# Tracing makes millions of small objects that live: looking through them for garbage is a sixth of a test's time.
gc.set_threshold(200_000, 20, 20)

import tensorflow as tf

# Before anything runs on a device: they cannot be made later.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)
