"""The table of boxes beside the images is checked, kept with the set as it was, and not taken for another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_downloads import nifti

from ringfence.weak.building import BoxesRefused, PreparationFailed, prepare, prepare_source
from ringfence.weak.datasets import LAYOUTS
from ringfence.weak.datasets.box_table import BoxTable
from ringfence.weak.prepared.kept_boxes import KeptBoxes
from ringfence.weak.prepared.prepared_set import MANIFEST, PreparedSet, read_prepared
from ringfence.weak.ranks.cases import Crew

HEADER = "case,slice,class,row_low,row_high,column_low,column_high\n"
ROWS = "a,0,x,1,9,2,9\nb,1,x,3,8,3,9\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate("ab"):
        nifti(
            tmp_path / f"mine/{name}.nii.gz", np.random.default_rng(seed).integers(0, 99, (3, 16, 16)).astype("i2")
        )
    (tmp_path / "mine/boxes.csv").write_text(HEADER + ROWS)
    return tmp_path / "mine"


def kept(prepared: PreparedSet) -> Path:
    assert prepared.boxes is not None
    return prepared.boxes.path_in(prepared.path)


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_kept_as_it_was(folder: Path, tmp_path: Path, workers: int) -> None:
    done = prepare("folder", folder, tmp_path / "set", crew=Crew(workers=workers))
    assert ("boxes", "from boxes.csv") in done.prepared.rows()
    prepared = read_prepared(tmp_path / "set")
    assert prepared == done.prepared
    assert (prepared.classes, prepared.channels, prepared.left_out) == (("x",), ("image",), ())
    assert kept(prepared).read_text() == HEADER + ROWS
    assert prepared.of("validation") == ()


def test_preparing_again_takes_it_anew(folder: Path, tmp_path: Path) -> None:
    """A corrected class, too: without masks it is a name alone."""
    prepare("folder", folder, tmp_path / "set")
    (folder / "boxes.csv").unlink()
    rows = [{"case": c, "slice": 0, "class": "y", "x_min": 1, "x_max": 4, "y_min": 2, "y_max": 6} for c in "ab"]
    (folder / "boxes.json").write_text(json.dumps(rows))
    done = prepare("folder", folder, tmp_path / "set")
    assert (done.kept, done.prepared.classes) == (2, ("y",))
    assert kept(done.prepared).name == "boxes.json"
    assert not (tmp_path / "set/boxes.csv").exists()
    assert prepare("folder", folder, tmp_path / "set").kept == 2


def test_a_set_that_lost_its_table_has_none(folder: Path, tmp_path: Path) -> None:
    prepare("folder", folder, tmp_path / "set")
    source = replace(LAYOUTS["folder"].source_at(folder), boxes=None)
    assert prepare_source(source, tmp_path / "set").prepared.boxes is None
    assert not (tmp_path / "set/boxes.csv").exists()


def test_wrong_boxes_make_no_set(folder: Path, tmp_path: Path) -> None:
    table = folder / "boxes.csv"
    table.write_text(HEADER + "a,7,x,1,9,2,9\nb,1,x,3,8,3,99\n")
    with pytest.raises(
        BoxesRefused, match=r"(?s)boxes.csv: 2 problems:.*line 2: slice 7.*line 3: .*All cases are ready"
    ):
        prepare("folder", folder, tmp_path / "set")
    assert not (tmp_path / "set" / MANIFEST).exists()
    assert not (tmp_path / "set/boxes.csv").exists()
    table.write_text(HEADER + ROWS.replace("x", "z"))
    done = prepare("folder", folder, tmp_path / "set")
    assert (done.kept, done.prepared.classes) == (2, ("z",))


def test_a_case_without_boxes_may_be_taken_out(folder: Path, tmp_path: Path) -> None:
    (folder / "boxes.csv").write_text(HEADER + "a,0,x,1,9,2,9\n")
    with pytest.raises(
        BoxesRefused, match="no box at all for b, of the 2 cases for training: annotate it, or prepare"
    ):
        prepare("folder", folder, tmp_path / "set")
    (folder / "b.nii.gz").unlink()
    done = prepare("folder", folder, tmp_path / "set")
    assert [case.name for case in done.prepared.cases] == ["a"]
    assert sorted(file.name for file in (tmp_path / "set").glob("*.npz")) == ["a.npz"]


def test_boxes_of_a_case_that_failed_are_passed_over(folder: Path, tmp_path: Path) -> None:
    """One that cannot be read, and one of which there is no image."""
    (folder / "c.nii.gz").write_bytes(b"no image")
    nifti(folder / "masks/d.nii.gz", np.zeros((3, 16, 16), np.uint8))
    (folder / "boxes.csv").write_text(HEADER + ROWS + "c.nii.gz,0,x,1,2,1,2\nd,0,x,1,2,1,2\n")
    with pytest.raises(PreparationFailed, match="2 failed and 2 are ready"):
        prepare("folder", folder, tmp_path / "set")
    done = prepare("folder", folder, tmp_path / "set", skip_failures=True)
    assert (len(done.failures), done.prepared.left_out) == (2, ("c", "d"))
    assert read_prepared(tmp_path / "set") == done.prepared


def test_where_there_are_masks_wrong_boxes_are_a_remark(tmp_path: Path) -> None:
    """A table that is for something else keeps nobody from training on masks' boxes, in a folder that it did not make."""
    folder = tmp_path / "nnunet"
    for name in "ab":
        mask = np.zeros((3, 16, 16), np.uint8)
        mask[1, 4:9, 5:9] = 1
        nifti(folder / f"labelsTr/{name}.nii.gz", mask)
        nifti(folder / f"imagesTr/{name}_0000.nii.gz", mask)
    facts = {"channel_names": {"0": "T2"}, "labels": {"background": 0, "x": 1}, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(facts))
    (folder / "boxes.csv").write_text(HEADER + "b,0,x,1,9,2,9\n")
    done = prepare("folder", folder, tmp_path / "set")
    assert done.prepared.boxes is None
    assert not (tmp_path / "set/boxes.csv").exists()
    assert "no box at all for a" in str(done)
    assert "boxes.csv is not kept with the set: training takes boxes around the masks" in str(done)
    assert "is not kept with the set" in done._repr_html_()
    (folder / "boxes.csv").write_text(HEADER + ROWS)
    assert prepare("folder", folder, tmp_path / "set").prepared.boxes is not None
    (folder / "boxes.csv").write_text(HEADER + "b,0,x,1,9,2,9\n")
    with pytest.raises(BoxesRefused, match="which is still the set of an earlier call"):
        prepare("folder", folder, tmp_path / "set")  # it is for this set
    assert kept(read_prepared(tmp_path / "set")).read_text() == HEADER + ROWS


def test_classes_are_renamed_in_place_and_have_other_labels_before_there_is_an_array(
    folder: Path, tmp_path: Path
) -> None:
    for name in "ab":
        nifti(folder / f"masks/{name}.nii.gz", np.full((3, 16, 16), 255, np.uint8))
    with pytest.raises(PreparationFailed, match="unknown labels: 255"):
        prepare("folder", folder, tmp_path / "set")
    (folder / "boxes.csv").write_text(HEADER + ROWS.replace("x", "255"))
    assert prepare("folder", folder, tmp_path / "set").prepared.labels == (255,)
    (folder / "boxes.csv").write_text(HEADER + ROWS.replace("x", "254"))
    with pytest.raises(FileExistsError, match=r"holds another preparation \(.*labels was \[255\], now \[254\]"):
        prepare("folder", folder, tmp_path / "set")


def test_a_case_that_came_and_went_is_forgotten(folder: Path, tmp_path: Path) -> None:
    prepare("folder", folder, tmp_path / "set")
    (folder / "c.nii.gz").write_bytes((folder / "a.nii.gz").read_bytes())
    with pytest.raises(BoxesRefused, match="no box at all for c"):
        prepare("folder", folder, tmp_path / "set")
    (folder / "c.nii.gz").unlink()
    for _ in range(2):
        assert prepare("folder", folder, tmp_path / "set").kept == 2
    assert "c.npz" not in {file.name for file in (tmp_path / "set").iterdir()}


def test_somebody_elses_file_is_not_touched(folder: Path, tmp_path: Path) -> None:
    source = replace(LAYOUTS["folder"].source_at(folder), boxes=None)
    prepare_source(source, tmp_path / "set")
    mine = tmp_path / "set/boxes.csv"
    mine.write_text("mine")
    prepare_source(source, tmp_path / "set")
    with pytest.raises(FileExistsError, match=r"boxes.csv is not what was prepared: move it beside the images"):
        prepare("folder", folder, tmp_path / "set")
    assert mine.read_text() == "mine"
    assert read_prepared(tmp_path / "set").boxes is None


def test_an_edited_copy_is_refused_and_not_written_over(folder: Path, tmp_path: Path) -> None:
    prepared = prepare("folder", folder, tmp_path / "set").prepared
    edited = HEADER + ROWS.replace("1,9", "1,8")
    (tmp_path / "set/boxes.csv").write_text(edited)
    with pytest.raises(ValueError, match=r"boxes.csv was changed since it was prepared"):
        kept(prepared)
    (folder / "c.nii.gz").write_bytes((folder / "a.nii.gz").read_bytes())
    with pytest.raises(FileExistsError, match="is not what was prepared"):
        prepare("folder", folder, tmp_path / "set")
    assert read_prepared(tmp_path / "set") == prepared  # refused before anything is made
    (folder / "c.nii.gz").unlink()
    (folder / "boxes.csv").write_text(edited)  # as the message says
    assert kept(prepare("folder", folder, tmp_path / "set").prepared).read_text() == edited
    (tmp_path / "set/boxes.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"boxes.csv is missing: prepare the set again"):
        kept(prepared)


@pytest.mark.parametrize(("name", "kept_as"), [("manifest.json", "boxes.json"), ("mine.txt", "boxes.csv")])
def test_it_has_one_name_in_the_set(folder: Path, tmp_path: Path, name: str, kept_as: str) -> None:
    source = LAYOUTS["folder"].source_at(folder)
    rows = [{"case": c, "slice": 0, "class": "x", "x_min": 1, "x_max": 4, "y_min": 2, "y_max": 6} for c in "ab"]
    text = json.dumps(rows) if kept_as == "boxes.json" else HEADER + ROWS
    prepare_source(replace(source, boxes=BoxTable(tmp_path / name, text)), tmp_path / "set")
    assert kept(read_prepared(tmp_path / "set")).name == kept_as


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
    assert KeptBoxes.from_facts(manifest["boxes"])
    manifest["boxes"] = facts
    (tmp_path / "set" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="cannot be used"):
        read_prepared(tmp_path / "set")
