"""Layouts by name, and a user's own by its path: on the command line and from Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest
from downloads import case, decathlon, names, nnunet

from ringfence.cli import main
from ringfence.weak.building import prepare, prepare_source
from ringfence.weak.datasets import LAYOUTS, Layout, find_decathlon, find_nnunet, layout_named

MODULE = '''
from pathlib import Path
from ringfence.weak.datasets import Layout, Option, Source, SourceCase, SourceVolume, every_fifth, with_validation


def find(path, validation=None, ending="img"):
    """patientNN/img.nii.gz and patientNN/seg.nii.gz."""
    folders = sorted(folder for folder in Path(path).iterdir() if folder.is_dir())
    cases = tuple(
        SourceCase(one.name, (SourceVolume(one / f"{ending}.nii.gz"),), SourceVolume(one / "seg.nii.gz"))
        for one in folders
    )
    source = Source("pairs", "Pairs", ("CT",), ("liver",), (1,), cases, every_fifth(cases), "every fifth")
    return with_validation(source, validation)


PAIRS = Layout("pairs", "a folder for each patient", find, options=(Option("ending", "the images' name"),))
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A download in a layout of the user's, and the current folder holds the module that reads it."""
    (tmp_path / "my_pairs.py").write_text(MODULE)
    for number in range(3):
        folder = tmp_path / f"src/patient{number}"
        folder.mkdir(parents=True)
        voxels = np.random.default_rng(number).integers(0, 900, (16, 16, 2)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 5.0, 1.0])), folder / "img.nii.gz")
        mask = (voxels > 500).astype(np.uint8)
        nibabel.save(nibabel.Nifti1Image(mask, np.diag([2.0, 2.0, 5.0, 1.0])), folder / "seg.nii.gz")
        nibabel.save(nibabel.Nifti1Image(-voxels, np.diag([2.0, 2.0, 5.0, 1.0])), folder / "late.nii.gz")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_pairs", None)


def test_each_layout_is_registered_by_its_name() -> None:
    assert {"promise12", "folder", "nnunet", "decathlon"} <= set(LAYOUTS)
    for name, layout in LAYOUTS.items():
        assert layout.name == name
        assert layout_named(name) is layout_named(layout) is layout
        assert "\n" not in layout.description


def test_a_layout_by_its_own_name_finds_what_folder_finds(tmp_path: Path) -> None:
    assert find_nnunet(nnunet(tmp_path / "n")) == LAYOUTS["folder"].find(tmp_path / "n")
    assert find_decathlon(decathlon(tmp_path / "d")) == LAYOUTS["folder"].find(tmp_path / "d")
    with pytest.raises(ValueError, match="dataset.json cannot be used: 'modality' is missing"):
        find_decathlon(tmp_path / "n")


def test_promise12_takes_numbers_for_names(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        case(tmp_path, number)
    source = LAYOUTS["promise12"].find(tmp_path, validation=["01", "Case03"])
    assert names(source) == ["Case01", "Case02", "Case03"]
    assert source.validation == {"Case01", "Case03"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("promise13", r"there is no layout 'promise13'; did you mean 'promise12'\? \(or one of your own"),
        ("x", r"there is no layout 'x'; there is promise12, folder, nnunet, decathlon \(or"),
        ("nowhere.PAIRS", "layout: there is no module 'nowhere' for 'nowhere.PAIRS'"),
        ("my_pairs.PAIR", r"layout: my_pairs has no 'PAIR'; did you mean 'PAIRS'\?"),
        ("my_pairs.find", r"layout: 'my_pairs.find' is not a Layout .* but function"),
    ],
)
@pytest.mark.usefixtures("own")
def test_what_is_not_a_layout(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout_named(name)


def test_ones_own_layout_on_the_command_line(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prepare", "my_pairs.PAIRS", "src", "dst", "--size", "16", "16", "--validation", "patient1"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Pairs: 3 cases, 6 slices" in shown
    assert "validation  1 case, 2 slices (as given)" in shown
    with pytest.raises(SystemExit):
        main(["prepare", "my_pairs.PAIRS", "--help"])
    assert "--ending" in capsys.readouterr().out


def test_ones_own_layout_from_python(own: Path) -> None:
    by_path = prepare("my_pairs.PAIRS", "src", own / "a")
    layout = layout_named("my_pairs.PAIRS")
    assert isinstance(layout, Layout)
    by_layout = prepare(layout, own / "src", own / "b")
    by_source = prepare_source(layout.find(own / "src"), own / "c")
    assert by_path.prepared.cases == by_layout.prepared.cases == by_source.prepared.cases
    assert by_path.prepared.size == (16, 16)
    assert by_path.split == "every fifth"
    late = prepare(layout, own / "src", own / "d", ending="late", validation=["patient0"]).prepared
    assert late.cases[0].sha256 != by_path.prepared.cases[0].sha256
    assert [one.split for one in late.cases] == ["validation", "train", "train"]


def test_options_of_another_layout_are_refused(own: Path) -> None:
    with pytest.raises(TypeError, match=r"the layout pairs has no option 'endings'; did you mean 'ending'\?"):
        prepare("my_pairs.PAIRS", own / "src", own / "dst", endings="late")
    with pytest.raises(TypeError, match="the layout promise12 has no option 'fold'; there is none"):
        prepare("promise12", own / "src", own / "dst", fold=1)
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        prepare("promise12", own / "none", own / "dst")
    with pytest.raises(ValueError, match="is inside .*: downloads stay as they are"):
        prepare("promise12", own / "src", own / "src/dst")
    assert not (own / "dst").exists()
