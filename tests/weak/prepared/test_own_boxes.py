"""The table of boxes beside the images is kept with the set, as it was, and is not taken for another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_downloads import nifti

from ringfence.weak.datasets import LAYOUTS
from ringfence.weak.prepared.build import prepare, prepare_source
from ringfence.weak.prepared.own_boxes import OwnBoxes
from ringfence.weak.prepared.prepared_set import MANIFEST, PreparedSet, read_prepared

ROWS = "case,slice,class,row_low,row_high,column_low,column_high\na,0,x,1,9,2,9\nb,1,x,3,8,3,9\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate("ab"):
        nifti(
            tmp_path / f"mine/{name}.nii.gz",
            np.random.default_rng(seed).integers(0, 99, (3, 16, 16)).astype(np.int16),
        )
    (tmp_path / "mine/boxes.csv").write_text(ROWS)
    return tmp_path / "mine"


def kept(prepared: PreparedSet) -> Path:
    assert prepared.boxes is not None
    return prepared.boxes.path_in(prepared.path)


def test_it_is_kept_as_it_was(folder: Path, tmp_path: Path) -> None:
    done = prepare("folder", folder, tmp_path / "set")
    assert ("boxes", "from boxes.csv") in done.prepared.rows()
    prepared = read_prepared(tmp_path / "set")
    assert prepared == done.prepared
    assert (prepared.classes, prepared.channels) == (("x",), ("image",))
    assert kept(prepared).read_text() == ROWS
    assert prepared.of("validation") == ()


def test_preparing_again_takes_it_anew(folder: Path, tmp_path: Path) -> None:
    prepare("folder", folder, tmp_path / "set")
    (folder / "boxes.csv").unlink()
    (folder / "boxes.json").write_text(json.dumps([{"case": "a", "class": "x"}]))
    done = prepare("folder", folder, tmp_path / "set")
    assert done.kept == 2
    assert kept(done.prepared).name == "boxes.json"
    assert not (tmp_path / "set/boxes.csv").exists()


def test_a_set_that_lost_its_table_has_none(folder: Path, tmp_path: Path) -> None:
    prepare("folder", folder, tmp_path / "set")
    source = replace(LAYOUTS["folder"].source_at(folder), boxes=None)
    assert prepare_source(source, tmp_path / "set").prepared.boxes is None
    assert not (tmp_path / "set/boxes.csv").exists()


def test_another_table_is_refused(folder: Path, tmp_path: Path) -> None:
    prepared = prepare("folder", folder, tmp_path / "set").prepared
    (tmp_path / "set/boxes.csv").write_text(ROWS.replace("1,9", "1,8"))
    with pytest.raises(ValueError, match=r"boxes.csv was changed since it was prepared"):
        kept(prepared)
    (tmp_path / "set/boxes.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"boxes.csv is missing: prepare the set again"):
        kept(prepared)


@pytest.mark.parametrize(
    "facts",
    [
        [],
        "boxes.csv",
        {},
        {"file": "boxes.csv"},
        {"file": "boxes.csv", "sha256": "0"},
        {"file": "../boxes.csv", "sha256": "0" * 64},
        {"file": "a.npz", "sha256": "0" * 64},
        {"file": 3, "sha256": "0" * 64},
    ],
)
def test_a_damaged_manifest(folder: Path, tmp_path: Path, facts: object) -> None:
    prepare("folder", folder, tmp_path / "set")
    manifest = json.loads((tmp_path / "set" / MANIFEST).read_text())
    assert OwnBoxes.from_facts(manifest["boxes"])
    manifest["boxes"] = facts
    (tmp_path / "set" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="cannot be used"):
        read_prepared(tmp_path / "set")
