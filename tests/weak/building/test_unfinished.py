"""Preparing that is stopped and gone on with: only what is missing is done, and nobody else's folder is touched."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_downloads import SIZE, case, content, labelled, nifti

from ringfence.folders import LOCK
from ringfence.weak.building.build import PreparationFailed, prepare_source
from ringfence.weak.building.unfinished import SOURCES
from ringfence.weak.datasets import find_folder, find_promise12
from ringfence.weak.prepared.prepared_set import MANIFEST, read_prepared


def test_again_does_only_what_is_missing(download: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dst"
    prepare_source(find_promise12(download), folder, size=SIZE)
    before = content(folder)
    assert prepare_source(find_promise12(download), folder, size=SIZE).kept == 3
    assert {name: text for name, (text, _) in content(folder).items()} == {
        name: text for name, (text, _) in before.items()
    }
    assert content(folder)["Case01.npz"] == before["Case01.npz"]  # not even touched
    (folder / "Case01.npz").write_bytes(b"damaged")
    case(download, 2, side=20)
    done = prepare_source(find_promise12(download), folder, size=SIZE)
    assert done.kept == 1
    assert content(folder)["Case01.npz"][0] == before["Case01.npz"][0]
    assert read_prepared(folder).cases[1].shape == (3, 20, 20)


def test_interrupted_and_gone_on_with(download: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(name: str) -> None:
        if name == "Case02":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE, tell=stop)
    assert sorted(content(tmp_path / "dst")) == ["Case01.npz", "Case02.npz", SOURCES]

    def torn(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", torn)
        with pytest.raises(KeyboardInterrupt):
            prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    assert sorted(content(tmp_path / "dst")) == ["Case01.npz", "Case02.npz", SOURCES]
    assert prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE).kept == 2
    whole = prepare_source(find_promise12(download), tmp_path / "whole", size=SIZE).prepared
    assert read_prepared(tmp_path / "dst").cases == whole.cases
    case(download, 2, side=20)  # a finished set, one of whose cases is being made anew, is none until that is done
    with pytest.raises(KeyboardInterrupt):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE, tell=stop)
    assert not (tmp_path / "dst" / MANIFEST).exists()


def test_a_finished_set_outlives_its_source(download: Path, tmp_path: Path) -> None:
    prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    before = content(tmp_path / "dst")
    (download / "Case01.raw").unlink()
    with pytest.raises(
        PreparationFailed, match=r"1 failed and 2 are ready in .*, which is still the set of an earl"
    ):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    assert content(tmp_path / "dst") == before


def test_a_folder_of_others_is_refused_untouched(download: Path, tmp_path: Path) -> None:
    source, folder = find_promise12(download), tmp_path / "dst"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    before = content(folder)
    with pytest.raises(
        FileExistsError, match=r"dst is not empty, and nothing was being prepared .* Nothing was changed"
    ):
        prepare_source(source, folder, size=SIZE)
    assert content(folder) == before
    with pytest.raises(FileExistsError, match="is a file"):
        prepare_source(source, folder / "thesis.tex", size=SIZE)
    prepare_source(source, tmp_path / "done", size=SIZE)
    before = content(tmp_path / "done")
    case(tmp_path / "other", 40)
    for refused, size, message in (
        (source, (24, 16), r"holds another preparation \(size was \[16, 16\], now \[24, 16\]\)"),
        (
            find_promise12(tmp_path / "other"),
            SIZE,
            r"cases that are not in this data set \(Case01, Case02, Case03\)",
        ),
        (replace(source, name="X"), SIZE, "name was PROMISE12, now X"),
        (replace(source, validation=frozenset({"Case01"})), SIZE, r"\(Case01, Case02 would change"),
    ):
        with pytest.raises(FileExistsError, match=message):
            prepare_source(refused, tmp_path / "done", size=size)
        assert content(tmp_path / "done") == before
    (tmp_path / "done" / SOURCES).write_text("{}")
    with pytest.raises(ValueError, match=r"sources.json is damaged: name a new folder"):
        prepare_source(source, tmp_path / "done", size=SIZE)


def test_a_full_disk_ends_it_at_once(download: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: full(number) if written else written.append(number))
        written: list[int] = []
        with pytest.raises(OSError, match=r"Case01.npz cannot be written: the disk is full; free some room"):
            prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    assert list(content(tmp_path / "dst")) == [SOURCES]
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match="the disk has 0 MB left"):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)


def test_one_at_a_time(download: Path, tmp_path: Path) -> None:
    """A lock that another process holds is respected; a file that such a process left behind locks nothing."""
    source, folder = find_promise12(download), tmp_path / "dst"
    hold = (
        "import sys\nfrom pathlib import Path\nfrom ringfence.folders import locked\n"
        "with locked(Path(sys.argv[1]), 'prepared'):\n    print('held', flush=True)\n    input()"
    )
    command = [sys.executable, "-c", hold, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FileExistsError, match=r"dst is being prepared by another process: wait until it has"):
            prepare_source(source, folder, size=SIZE)
        assert list(content(folder)) == [LOCK]
        other.kill()
    assert list(content(folder)) == [LOCK]  # it had no time to remove it
    assert prepare_source(source, folder, size=SIZE).kept == 0
    assert LOCK not in content(folder)
    (folder / LOCK).write_text("1 another-machine")  # as older versions wrote it
    locks: list[bool] = []
    assert (
        prepare_source(source, folder, size=SIZE, tell=lambda case: locks.append(LOCK in content(folder))).kept == 3
    )
    assert locks == [True] * 3
    assert LOCK not in content(folder)


def test_the_size_once_chosen_stays(tmp_path: Path) -> None:
    """A case that could not be read would otherwise move the median under those that are ready."""
    facts = {"modality": {"0": "CT"}, "labels": {"0": "background", "1": "liver"}}
    listed = [{"image": f"i/{name}.nii.gz", "label": f"l/{name}.nii.gz"} for name in "ab"]
    for seed, name in enumerate("ab"):
        shape = (2, 16, 16) if name == "a" else (2, 64, 64)
        nifti(tmp_path / f"src/i/{name}.nii.gz", labelled(seed, (0, 7), shape))
        nifti(tmp_path / f"src/l/{name}.nii.gz", labelled(seed, (0, 1), shape))
    good = (tmp_path / "src/i/b.nii.gz").read_bytes()
    (tmp_path / "src/i/b.nii.gz").write_bytes(b"")
    (tmp_path / "src/dataset.json").write_text(json.dumps(facts | {"training": listed}))
    with pytest.raises(PreparationFailed):
        prepare_source(find_folder(tmp_path / "src"), tmp_path / "dst")
    (tmp_path / "src/i/b.nii.gz").write_bytes(good)
    done = prepare_source(find_folder(tmp_path / "src"), tmp_path / "dst")
    assert (done.prepared.size, done.kept) == ((16, 16), 1)
