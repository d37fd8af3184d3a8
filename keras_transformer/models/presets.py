"""Named sizes. A preset is a size, not a trained model: weights are random."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"num_encoder_layers": 4, "num_decoder_layers": 4, "d_model": 128, "num_heads": 4, "d_ff": 256},
    "small": {"num_encoder_layers": 3, "num_decoder_layers": 3, "d_model": 256, "num_heads": 4, "d_ff": 1024},
    # The paper's table 3, rows "base" and "big".
    "base": {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048},
    "big": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "d_model": 1024,
        "num_heads": 16,
        "d_ff": 4096,
        "dropout": 0.3,
    },
}


def preset(name: str) -> dict[str, Any]:
    """The constructor's arguments of a preset; a `ValueError` that lists them all for an unknown name."""
    if name not in PRESETS:
        raise ValueError(f"Unknown preset. Expected one of {', '.join(PRESETS)}. Received: preset={name!r}")
    return dict(PRESETS[name])
