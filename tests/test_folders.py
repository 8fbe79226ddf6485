"""One process at a time writes to a folder, and what killed ones left does not stand in its way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import children
from ringfence.folders import LOCK, content, is_debris, locked

RACE = """
import random, sys, time
from pathlib import Path
from ringfence.folders import locked
folder = Path(sys.argv[1])
got = 0
while got < 80:  # however often it has to wait
    try:
        with locked(folder, "raced for"):
            (folder / "inside").open("x").close()  # FileExistsError: another one is inside
            (folder / "inside").unlink()
            got += 1
    except FileExistsError as error:
        if "by another process" not in str(error):
            raise
print(got)
"""


def test_four_contenders_and_never_two_inside(tmp_path: Path) -> None:
    """D10: of 300 rounds for a stale lock, two got in in 7."""
    folder = tmp_path / "race"
    folder.mkdir()
    (folder / LOCK).write_text("")  # a stale one
    racers = [children.started([sys.executable, "-c", RACE, folder]) for _ in range(4)]
    said = [children.ended(racer) for racer in racers]
    assert [error for _, error in said] == [""] * 4
    assert sum(int(got) for got, _ in said) > 300
    assert list(folder.iterdir()) == []


def test_the_lock_comes_before_the_first_byte(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with locked(folder, "written to"):
        assert [file.name for file in folder.iterdir()] == [LOCK]
        taken = r"b is being tested by another process: .* Nothing was changed"
        with pytest.raises(FileExistsError, match=taken), locked(folder, "tested"):
            pass
        with locked(folder, "written", only="scores.csv"):  # a single file, whatever else goes on
            assert content(folder) == []
            taken = r"b/scores.csv is being written"
            with pytest.raises(FileExistsError, match=taken), locked(folder, "written", only="scores.csv"):
                pass
        (folder / "result").write_text("1")
    assert [file.name for file in folder.iterdir()] == ["result"]


def test_a_folder_that_was_made_for_nothing_goes(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "new", "written to"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with locked(tmp_path / "mine", "written to"):
        pass
    assert (tmp_path / "mine").is_dir()


def test_debris_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """D12: also deeper down, as a training has it."""
    debris = (
        ".config.yaml.4711.part",
        "seed-0/penalty/.last.ckpt.0a1b.part",
        "training.lock",
        "preparing.lock",
        LOCK,
    )
    kept = ("config.yaml", "seed-0/penalty/last.ckpt", ".hidden", "notes.lock", "unfinished-thesis.tex")
    for name in (*debris, *kept, ".unfinished-x/patient.nii.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with locked(tmp_path, "written to"):
        pass
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()) == sorted(kept)
    assert not (tmp_path / ".unfinished-x").exists()


def test_what_is_debris() -> None:
    for name in (LOCK, ".ringfence-report.lock", ".a.csv.12.part", ".unfinished-ab", "training.lock"):
        assert is_debris(Path("a", name)), name
    for name in ("config.yaml", ".ringfence", "a.part", ".git", "poetry.lock"):
        assert not is_debris(Path("a", name)), name


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file is a file; a folder is needed"), locked(tmp_path / "file", "x"):
        pass
    inside = r"deeper cannot be written: it would be inside a file"
    with pytest.raises(OSError, match=inside), locked(tmp_path / "file" / "deeper", "x"):
        pass
    with pytest.raises(OSError, match=r"ringfence cannot be written: "), locked(Path("/proc/ringfence"), "x"):
        pass
