"""Small volumes as files of each format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

VOXELS = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)  # z, y, x


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
