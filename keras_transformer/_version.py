"""The package's version: one place, read by the build and by exports."""

__version__ = "0.1.0"
