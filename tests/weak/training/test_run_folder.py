"""A run's folder: never overwritten, resumed only as it was begun, files whole or not at all."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.files import check_room
from ringfence.folders import LOCK
from ringfence.weak.training.history import as_csv
from ringfence.weak.training.run_folder import OneRun, RunFolder, run_in, stored_config

CONFIG = {"seeds": [0, 1], "data": {"size": 64, "radius": None}, "network": {"class_path": "a.B"}}


def opened(
    path: Path, config: Mapping[str, Any], *, resume: bool, about: Mapping[str, str] | None = None
) -> RunFolder:
    """A run that is begun or gone on with, and at once left alone."""
    with run_in(path, config, resume, about) as folder:
        return folder


def test_a_new_folder_says_what_was_asked_and_where_it_ran(tmp_path: Path) -> None:
    folder = opened(tmp_path / "a" / "b", CONFIG, resume=False)
    assert stored_config(folder.path) == CONFIG
    facts = json.loads((folder.path / "environment.json").read_text())
    assert {"ringfence", "python", "torch", "monai", "cpu", "gpu", "commit", "command", "started"} <= set(facts)


def test_another_run_is_never_overwritten(tmp_path: Path) -> None:
    folder = opened(tmp_path / "run", CONFIG, resume=False)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(
        FileExistsError, match="run already holds another run: go on with it by --resume, or name a new"
    ):
        opened(folder.path, CONFIG, resume=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="mine already holds other files: name a new folder with --out"):
        opened(tmp_path / "mine", CONFIG, resume=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="file is a file; a folder is needed"):
        opened(tmp_path / "file", CONFIG, resume=False)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    (tmp_path / "empty").mkdir()
    opened(tmp_path / "empty", CONFIG, resume=False)  # an empty one is new


def test_a_run_goes_on_as_it_was_begun_or_not_at_all(tmp_path: Path) -> None:
    folder = opened(tmp_path / "run", CONFIG, resume=False)
    assert opened(folder.path, CONFIG, resume=True) == folder
    changed = CONFIG | {"network": {"class_path": "a.C"}, "data": {"size": 32, "radius": None}}
    with pytest.raises(
        ValueError, match=r"this differs:\n  data.size: was 64, now 32\n  network.class_path: was a.B, now a.C"
    ):
        opened(folder.path, changed, resume=True)
    with pytest.raises(FileNotFoundError, match=r"nothing holds no run \(there is no config.yaml in it\)"):
        opened(tmp_path / "nothing", CONFIG, resume=True)


def test_a_setting_that_was_not_there_yet_has_its_default(tmp_path: Path) -> None:
    """A run that was begun before there were labels from brightness goes on without them."""
    folder = opened(tmp_path / "run", CONFIG | {"refinement": {"unsure": 0.2}}, resume=False)
    opened(folder.path, CONFIG | {"refinement": {"unsure": 0.2, "looks": False}}, resume=True)
    with pytest.raises(ValueError, match=r"this differs:\n  refinement.looks: was False, now True"):
        opened(folder.path, CONFIG | {"refinement": {"unsure": 0.2, "looks": True}}, resume=True)


def test_methods_and_seeds_can_be_added_and_none_is_lost(tmp_path: Path) -> None:
    begun = CONFIG | {"methods": ["penalty", "log_barrier"]}
    folder = opened(tmp_path / "run", begun, resume=False)
    opened(folder.path, begun | {"seeds": [2, 1], "methods": ["log_barrier"]}, resume=True)
    assert stored_config(folder.path) == begun | {"seeds": [0, 1, 2]}
    opened(folder.path, begun | {"methods": ["full_supervision"]}, resume=True)
    assert stored_config(folder.path)["methods"] == ["penalty", "log_barrier", "full_supervision"]
    assert stored_config(folder.path)["seeds"] == [0, 1, 2]


def test_nothing_is_added_to_a_run_that_never_said_a_setting(tmp_path: Path) -> None:
    folder = opened(tmp_path / "run", CONFIG, resume=False)
    before = (folder.path / "config.yaml").read_text()
    later = CONFIG | {"augment": {"bias": 0.3}}
    opened(folder.path, later, resume=True)  # to finish it is fine
    with pytest.raises(ValueError, match=r"begun before there were augment\.bias: begin a new one with --out"):
        opened(folder.path, later | {"seeds": [0, 1, 2]}, resume=True)
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
    folder = opened(tmp_path / "run", CONFIG, resume=False)
    for _ in range(2):
        opened(folder.path, CONFIG, resume=True)
    facts = json.loads((folder.path / "environment.json").read_text())
    assert len(facts["resumed"]) == 2
    assert facts["started"] <= facts["resumed"][0]["started"] <= facts["resumed"][1]["started"]
    (folder.path / "environment.json").write_text("{")  # damaged: no reason not to go on
    opened(folder.path, CONFIG, resume=True)
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
    folder = opened(tmp_path / "run", CONFIG, resume=False)
    (folder.path / "config.yaml").write_text("a: [1")
    with pytest.raises(
        ValueError, match=r"config.yaml is damaged; it should hold the run's settings: .*config.yaml is not YAML"
    ):
        opened(folder.path, CONFIG, resume=True)


def test_a_kill_while_it_begins_is_begun_again(tmp_path: Path) -> None:
    """D4, D12: environment.json comes first and config.yaml last, so that no half of a run is gone on with."""
    path, about = tmp_path / "run", {"task": "PROMISE12"}
    opened(path, CONFIG, resume=False, about=about)
    (path / "config.yaml").unlink()  # killed before it was written
    for name in (".config.yaml.4711.part", "training.lock", LOCK):
        (path / name).write_text("")
    with pytest.raises(FileNotFoundError, match="holds no run"):
        opened(path, CONFIG, resume=True)
    opened(path, CONFIG, resume=False, about=about)
    assert sorted(file.name for file in path.iterdir()) == ["config.yaml", "environment.json"]
    (path / "environment.json").unlink()  # as older versions left it: the task is noted when it goes on
    opened(path, CONFIG, resume=True, about=about)
    assert json.loads((path / "environment.json").read_text())["task"] == "PROMISE12"
    (path / "config.yaml").write_text("")  # of an older version on a full disk
    opened(path, CONFIG, resume=False, about=about)
    assert stored_config(path) == CONFIG


def test_an_environment_of_others_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text('{"mine": 1}')
    with pytest.raises(FileExistsError, match="already holds other files"):
        opened(tmp_path, CONFIG, resume=False)
    assert (tmp_path / "environment.json").read_text() == '{"mine": 1}'


def test_other_constraints_are_another_run(tmp_path: Path) -> None:
    begun = {"constraints": {"strips": {}, "size": {"file": "a.csv"}}}
    opened(tmp_path / "run", begun, resume=False)
    opened(tmp_path / "run", begun, resume=True)
    for other in ({"strips": {}}, {"size": {"file": "a.csv"}}, {**begun["constraints"], "outside": {}}):
        with pytest.raises(ValueError, match=r"this differs:\n  constraints\."):
            opened(tmp_path / "run", {"constraints": other}, resume=True)


def test_a_result_reads_back_and_its_checkpoint_goes(tmp_path: Path) -> None:
    run = RunFolder(tmp_path).run(0, "penalty")
    run.path.mkdir(parents=True)
    (run.path / "last.ckpt").write_text("x")
    run.finish({"method": "penalty", "seed": 0, "epochs": 2, "last_epoch": {"dice": math.nan, "satisfaction": 0.5}})
    assert run.finished
    assert run.checkpoint is None
    assert "NaN" not in (run.path / "result.json").read_text()
    [result] = RunFolder(tmp_path).results
    assert math.isnan(result["last_epoch"]["dice"])
    assert result["last_epoch"]["satisfaction"] == 0.5
    assert "0.500" in str(RunFolder(tmp_path))
    (run.path / "last.ckpt").write_text("x")  # a kill between the result and its removal
    OneRun(run.path).tidy()
    assert run.checkpoint is None
    for damaged in (
        "[]",
        "{}",
        '{"method": 1}',
        '{"method": "a", "seed": 0, "last_epoch": {"dice": "x"}}',
        "{",
        "[" * 9999,
    ):
        (run.path / "result.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"result.json"):
            _ = RunFolder(tmp_path).results


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


def test_a_setting_that_did_not_exist_has_its_default(tmp_path: Path) -> None:
    """Else the second half would be another training, and nobody would know."""
    opened(tmp_path / "run", {"data": {"margin": 0}, "training": {"lr": 0.1}}, resume=False)
    now = {
        "data": {"margin": 0, "tighten": 0.0},
        "training": {"lr": 0.1, "neighbours": 0.0},
        "augment": {"turn": 0.0},
    }
    opened(tmp_path / "run", now, resume=True)
    for name, key in (("data", "tighten"), ("training", "neighbours"), ("augment", "turn")):
        with pytest.raises(ValueError, match=f"{name}.{key}: was 0.0, now 0.1"):
            opened(tmp_path / "run", now | {name: {**now[name], key: 0.1}}, resume=True)


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path: Path) -> None:
    opened(tmp_path / "run", {"a": 1}, resume=False)
    opened(tmp_path / "run", {"a": 1, "new": 2}, resume=True)
    with pytest.raises(ValueError, match="a: was 1, now 3"):
        opened(tmp_path / "run", {"a": 3, "new": 2}, resume=True)
