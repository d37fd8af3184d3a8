"""What every test stands on: a quiet TensorFlow, and logical CPUs that stand for several devices."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")

import tensorflow as tf

# Tracing makes millions of small objects that live: looking through them for garbage is a tenth of a test's time.
gc.set_threshold(200_000, 20, 20)

# Before anything runs on a device: they cannot be made later.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def pytest_collection_modifyitems(items):
    """Slow ones first: at the end neither of two processes waits long for the other."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
