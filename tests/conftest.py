"""What every test stands on: quiet TensorFlow, and two logical CPUs that stand for two devices."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
