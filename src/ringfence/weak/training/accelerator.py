"""Where a training runs, and in what."""

from __future__ import annotations

from typing import Literal

import torch


def choose_accelerator(device: str) -> Literal["cpu", "cuda"]:
    """Where to train; refuses a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("training.device: a GPU was asked for (cuda), and torch sees none; use auto or cpu")
    return "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"


def multiplies_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 by itself (AVX512-BF16, AMX); others do so by way of float32, slowly."""
    asked = getattr(torch.cpu, "get_capabilities", None)
    if asked is None:  # before torch 2.11 or so
        known = [getattr(torch.cpu, f"_is_{name}_supported", bool)() for name in ("avx512_bf16", "amx_tile")]
        return any(known)
    found = asked()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))
