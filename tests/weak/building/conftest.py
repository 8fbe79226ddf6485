"""A tiny download of PROMISE12."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_downloads import case


@pytest.fixture
def download(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        case(tmp_path / "src", number, packed=number == 3)
    return tmp_path / "src"
