"""A run's folder: never overwritten, resumed only as it was begun, files whole or not at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.files import check_room, write_text
from ringfence.weak.training.history import as_csv
from ringfence.weak.training.run_folder import LOCK, open_run_folder, run_in, stored_config

CONFIG = {"seeds": [0, 1], "data": {"size": 64, "radius": None}, "network": {"class_path": "a.B"}}


def test_a_new_folder_says_what_was_asked_and_where_it_ran(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "a" / "b", CONFIG, resume=False)
    assert stored_config(folder.path) == CONFIG
    facts = json.loads((folder.path / "environment.json").read_text())
    assert {"ringfence", "python", "torch", "monai", "cpu", "gpu", "commit", "command", "started"} <= set(facts)


def test_another_run_is_never_overwritten(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", CONFIG, resume=False)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(
        FileExistsError, match="run already holds another run: go on with it by --resume, or name a new"
    ):
        open_run_folder(folder.path, CONFIG, resume=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="mine already holds other files: name a new folder with --out"):
        open_run_folder(tmp_path / "mine", CONFIG, resume=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file is a file; a run needs a folder"):
        open_run_folder(tmp_path / "file", CONFIG, resume=False)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    (tmp_path / "empty").mkdir()
    open_run_folder(tmp_path / "empty", CONFIG, resume=False)  # an empty one is new


def test_a_run_goes_on_as_it_was_begun_or_not_at_all(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", CONFIG, resume=False)
    assert open_run_folder(folder.path, CONFIG, resume=True) == folder
    changed = CONFIG | {"network": {"class_path": "a.C"}, "data": {"size": 32, "radius": None}}
    with pytest.raises(
        ValueError, match=r"this differs:\n  data.size: was 64, now 32\n  network.class_path: was a.B, now a.C"
    ):
        open_run_folder(folder.path, changed, resume=True)
    with pytest.raises(FileNotFoundError, match=r"nothing holds no run \(there is no config.yaml in it\)"):
        open_run_folder(tmp_path / "nothing", CONFIG, resume=True)


def test_methods_and_seeds_can_be_added_and_none_is_lost(tmp_path: Path) -> None:
    begun = CONFIG | {"methods": ["penalty", "log_barrier"]}
    folder = open_run_folder(tmp_path / "run", begun, resume=False)
    open_run_folder(folder.path, begun | {"seeds": [2, 1], "methods": ["log_barrier"]}, resume=True)
    assert stored_config(folder.path) == begun | {"seeds": [0, 1, 2]}
    open_run_folder(folder.path, begun | {"methods": ["full_supervision"]}, resume=True)
    assert stored_config(folder.path)["methods"] == ["penalty", "log_barrier", "full_supervision"]
    assert stored_config(folder.path)["seeds"] == [0, 1, 2]


def test_nothing_is_added_to_a_run_that_never_said_a_setting(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", CONFIG, resume=False)
    before = (folder.path / "config.yaml").read_text()
    later = CONFIG | {"augment": {"bias": 0.3}}
    open_run_folder(folder.path, later, resume=True)  # to finish it is fine
    with pytest.raises(ValueError, match=r"begun before there were augment\.bias: begin a new one with --out"):
        open_run_folder(folder.path, later | {"seeds": [0, 1, 2]}, resume=True)
    assert (folder.path / "config.yaml").read_text() == before


def test_a_disk_without_room_is_noticed_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4_000_000))
    check_room(tmp_path / "a" / "run", 2_000_000)
    with pytest.raises(
        OSError,
        match=r"run: the run needs about 10 MB and the disk has 4 MB left; free some, or choose another folder",
    ):
        check_room(tmp_path / "a" / "run", 9_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    check_room(tmp_path / "a" / "run", 0)  # nothing left to write


def test_each_session_of_a_run_says_where_it_ran(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", CONFIG, resume=False)
    for _ in range(2):
        open_run_folder(folder.path, CONFIG, resume=True)
    facts = json.loads((folder.path / "environment.json").read_text())
    assert len(facts["resumed"]) == 2
    assert facts["started"] <= facts["resumed"][0]["started"] <= facts["resumed"][1]["started"]
    (folder.path / "environment.json").write_text("{")  # damaged: no reason not to go on
    open_run_folder(folder.path, CONFIG, resume=True)
    assert len(json.loads((folder.path / "environment.json").read_text())["resumed"]) == 1


HOLDER = """
import sys
from pathlib import Path
from ringfence.weak.training.run_folder import run_in
with run_in(Path(sys.argv[1]), {"a": 1}, resume=True):
    print("mine", flush=True)
    input()
"""


def test_nobody_else_trains_in_a_folder_meanwhile(tmp_path: Path) -> None:
    path, config = tmp_path / "run", {"a": 1}
    with run_in(path, config, resume=False):
        assert (path / LOCK).exists()
    assert not (path / LOCK).exists()
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        noted = (path / "environment.json").read_text()
        with (
            pytest.raises(FileExistsError, match=r"run is being trained in by another process: wait until it has"),
            run_in(path, config, resume=True),
        ):
            pass
        assert (path / "environment.json").read_text() == noted
        other.kill()  # without a chance to tidy up
    assert (path / LOCK).exists()
    with run_in(path, config, resume=True) as folder:  # what is left behind locks nothing
        assert folder.path == path
    with pytest.raises(FileNotFoundError, match="holds no run"), run_in(tmp_path / "none", config, resume=True):
        pass
    assert not (tmp_path / "none").exists()


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "run", CONFIG, resume=False)
    (folder.path / "config.yaml").write_text("a: [1")
    with pytest.raises(ValueError, match=r"config.yaml is damaged: it should hold the run's settings"):
        open_run_folder(folder.path, CONFIG, resume=True)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    write_text(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "new \ud800")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["dice", "t", "stability"]), st.floats(-1e6, 1e6), min_size=1),
        min_size=1,
        max_size=5,
    )
)
def test_rows_with_different_columns_read_back(rows: list[dict[str, float]]) -> None:
    import csv
    import io

    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert len(read) == len(rows)
    for before, after in zip(rows, read, strict=True):
        for name in ("dice", "t", "stability"):
            if name in before:
                assert float(after[name]) == pytest.approx(before[name], rel=1e-5, abs=1e-300)
            else:
                assert not after.get(name)


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path: Path) -> None:
    open_run_folder(tmp_path / "run", {"a": 1}, resume=False)
    open_run_folder(tmp_path / "run", {"a": 1, "new": 2}, resume=True)
    with pytest.raises(ValueError, match="a: was 1, now 3"):
        open_run_folder(tmp_path / "run", {"a": 3, "new": 2}, resume=True)
