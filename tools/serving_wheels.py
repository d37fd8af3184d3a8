"""Fetches the TensorFlow and TF-Text wheels that TensorFlow Serving is compared with.

    python tools/serving_wheels.py 2.20

puts them into `.venv-serving-2.20` at the repository's root, if they are not there, and prints that path. They are
unpacked and not installed: what we want is their libraries and headers, and no Python of theirs runs.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# 2.12 stands for TF-Text 2.12.1, which servers 2.18 and 2.19 carry and no newer TensorFlow's library loads.
WHEELS = {
    "2.12": ("tensorflow-cpu==2.12.1", "tensorflow-text==2.12.1"),
    "2.18": ("tensorflow-cpu==2.18.1",),
    "2.19": ("tensorflow-cpu==2.19.1",),
    "2.20": ("tensorflow-cpu==2.20.0", "tensorflow-text==2.20.0"),
}


def fetch(version: str) -> Path:
    """The directory with the wheels of `version`, one of `WHEELS`, which are fetched if it is not there.

    Raises:
        SystemExit: If pip cannot get them; the message is one line.
    """
    directory = ROOT / f".venv-serving-{version}"
    if directory.exists():
        return directory
    partial = directory.with_name(f"{directory.name}.partial-{os.getpid()}")
    # Python 3.11: the newest that TensorFlow 2.12 has wheels for.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:"]
    command += ["--python-version", "3.11", "--target", str(partial), *WHEELS[version]]
    # The constraints, where set, are the package's own versions.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    try:
        result = subprocess.run(command, env=environment, stdout=sys.stderr, check=False)
        if result.returncode:
            raise SystemExit(
                f"pip cannot get {' and '.join(WHEELS[version])}: needed are Linux on x86-64 or ARM-64, 2 GB of disk "
                "and the network. pip's own words are above."
            )
        (partial / ".gitignore").write_text("*\n")
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fetches the wheels that TensorFlow Serving is compared with.")
    parser.add_argument("version", choices=WHEELS)
    print(fetch(parser.parse_args().version))


if __name__ == "__main__":
    main()
