"""What a preparation says beforehand that it takes, against what it took."""

from __future__ import annotations

import shutil
import tracemalloc
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from small_downloads import write

from ringfence.weak.building.build import prepare_source
from ringfence.weak.building.needs import Needs
from ringfence.weak.datasets.promise12 import find_promise12


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for number, slices in ((1, 4), (2, 9)):
        mask = np.zeros((slices, 96, 80), np.int8)
        mask[1, 4:10, 5:12] = 1
        write(tmp_path / "src" / f"Case{number:02}.mhd", random.integers(0, 900, mask.shape).astype(np.int16))
        write(tmp_path / "src" / f"Case{number:02}_segmentation.mhd", mask)
    return tmp_path / "src"


def test_disk_and_memory_are_told_beforehand(scans: Path, tmp_path: Path) -> None:
    prepare_source(find_promise12(scans), tmp_path / "warm", size=(16, 16))  # imports are not the work's
    told: list[Needs] = []
    tracemalloc.start()
    prepare_source(find_promise12(scans), tmp_path / "dst", size=(64, 64), before=told.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (needs,) = told
    files = sum(file.stat().st_size for file in (tmp_path / "dst").glob("*.npz"))
    assert needs.cases == 2
    assert needs.disk == 2 * 13 * 64 * 64
    assert 0 <= files - needs.disk < 2000  # headers
    assert peak / 2 < needs.memory < 5 * peak  # without what torch takes while it resizes
    prepare_source(find_promise12(scans), tmp_path / "dst", size=(64, 64), before=told.append)
    assert told[1] == Needs(0, 0, 0)


def test_words() -> None:
    assert str(Needs(1, 2_000_000, 30_000_000)) == (
        "1 case to prepare: 2 MB on the disk, and up to about 30 MB of memory"
    )
    assert str(Needs(2, 2_000, 3_000, 4)).endswith("up to about 3 kB of memory for each of 4 processes")


def test_too_small_a_disk_is_refused_before_any_case(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(OSError, match=r"the run needs about 1 MB and the disk has 0 MB left; free some"):
        prepare_source(find_promise12(scans), tmp_path / "dst", size=(64, 64))
    assert not list((tmp_path / "dst").glob("*.npz"))
