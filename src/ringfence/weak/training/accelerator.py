"""Where a training runs."""

from __future__ import annotations

from typing import Literal

import torch


def choose_accelerator(device: str) -> Literal["cpu", "cuda"]:
    """Where to train; refuses a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("training.device: a GPU was asked for (cuda), and torch sees none; use auto or cpu")
    return "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"
