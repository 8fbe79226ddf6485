"""`ringfence prepare`: fast help, a summary with the next step, mistakes in one message, failures all listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit

from children import python
from ringfence.cli import main
from ringfence.weak.building import build as prepare_module
from ringfence.weak.datasets import LAYOUTS
from ringfence.weak.prepared import Preprocessing, read_prepared


@pytest.fixture
def download(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    for number in (1, 2, 3):
        voxels = np.arange(2 * 16 * 16, dtype=np.int16).reshape(2, 16, 16)
        for ending in ("", "_segmentation"):
            image = sitk.GetImageFromArray(voxels % 2 if ending else voxels + number)
            sitk.WriteImage(image, str(tmp_path / f"src/Case{number:02}{ending}.mhd"))
    return tmp_path / "src"


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in LAYOUTS)])
def test_help_needs_no_torch(arguments: list[str]) -> None:
    code = f"import sys\nfrom ringfence.cli import main\ntry:\n    main({['prepare', *arguments]})\nfinally:\n    assert not sys.modules.keys() & {{'torch', 'rich', 'SimpleITK', 'numpy'}}"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "SRC DST" in done.stdout
    assert len(arguments) == 1 or "--skip-failures" in done.stdout


def test_a_summary_and_what_to_do_next(download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "dst")
    assert (
        main(["prepare", "promise12", str(download), out, "--size", "16", "24", "--validation", "01", "Case03"])
        == 0
    )
    text = capsys.readouterr().out
    for line in (
        "PROMISE12: 3 cases, 6 slices",
        "train       1 case, 2 slices",
        "validation  2 cases, 4 slices (as given)",
        "masks       3 with, 0 without",
        "size        16 × 24",
        "classes     prostate",
        f"next: ringfence train {out}",
    ):
        assert line in text, line
    assert [case.name for case in read_prepared(out).of("validation")] == ["Case01", "Case03"]


def test_failures_are_listed_and_can_be_skipped(
    download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (download / "Case01.raw").write_bytes(b"")
    (download / "Case03_segmentation.mhd").unlink()
    command = ["prepare", "promise12", str(download), str(tmp_path / "dst"), "--size", "16", "16"]
    assert main(command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    before, said = shown.err.split("\n", 1)
    assert before == "2 cases to prepare: 2.05 kB on the disk, and up to about 12.8 kB of memory"
    assert said.startswith("ringfence prepare: 2 failed and 1 are ready")
    assert "Case01: " in shown.err
    assert "Case03: " in shown.err
    assert not (tmp_path / "dst/manifest.json").exists()
    assert main([*command, "--skip-failures"]) == 0
    shown = capsys.readouterr()
    assert "left out:" in shown.out
    assert "Case01: " in shown.out
    assert [case.name for case in read_prepared(tmp_path / "dst").cases] == ["Case02"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which layout?"),
        (["promise"], "there is no layout 'promise'; did you mean 'promise12'?"),
        (["promise12", "{src}", "{src}"], "is inside"),
        (["promise12", "{src}", "{src}/out"], "downloads stay as they are, name another folder"),
        (["promise12", "{src}/none", "{dst}"], "none does not exist"),
        (["folder", "{src}", "{dst}"], "holds no dataset.json"),
        (["promise12", "{src}", "{dst}", "--validation", "Case9"], "there is no case Case9"),
    ],
)
def test_mistakes_are_one_message_and_change_nothing(
    arguments: list[str], message: str, download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    places = {"src": download, "dst": tmp_path / "dst"}
    assert main(["prepare", *(argument.format(**places) for argument in arguments)]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_wrong_size_is_named(download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["prepare", "promise12", str(download), str(tmp_path / "dst"), "--size", "0", "16"])
    assert stop.value.code == 2
    assert "'0' is not a number of pixels between 8 and 4096" in capsys.readouterr().err
    assert not (tmp_path / "dst").exists()


def test_percentiles(download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prepare", "promise12", str(download), str(tmp_path / "dst"), "--size", "16", "16"]
    assert main([*command, "--percentiles", "2", "98"]) == 0
    assert read_prepared(tmp_path / "dst").preprocessing == Preprocessing((16, 16), (2.0, 98.0))
    capsys.readouterr()
    assert main(command) == 2
    message = capsys.readouterr().err
    assert (
        "dst holds another preparation (percentiles was [2.0, 98.0], now [0.5, 99.5]): name a new folder" in message
    )
    assert main([*command[:3], str(tmp_path / "other"), "--percentiles", "98", "2"]) == 2
    message = capsys.readouterr().err
    assert "percentiles are (98.0, 2.0); two are needed, the lower first, between 0 and 100" in message
    assert len(message.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_ctrl_c_says_how_to_go_on(
    download: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare_module, "prepare_source", stop)
    assert main(["prepare", "promise12", str(download), str(tmp_path / "dst")]) == 130
    assert "the same command again does only what is missing" in capsys.readouterr().err


def test_a_link_to_itself_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D11."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "data").mkdir()
    for source, out in (("loop", "out"), ("data", "loop")):
        assert main(["prepare", "folder", str(tmp_path / source), str(tmp_path / out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_images_and_boxes_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong boxes are told while somebody looks at them; repaired ones are taken by the same command."""
    mine, out = tmp_path / "mine", str(tmp_path / "set")
    mine.mkdir()
    for name in ("anna", "bert"):
        voxels = np.arange(2 * 16 * 16, dtype=np.int16).reshape(2, 16, 16)
        sitk.WriteImage(sitk.GetImageFromArray(voxels), str(mine / f"{name}.nii.gz"))
    header = "case,slice,class,row_low,row_high,column_low,column_high\n"
    table = mine / "boxes.csv"
    table.write_text(header + "anna,0,cyst,2,9,3,8\nbert,1,cyst,2,90,3,8\n")
    assert main(["prepare", "folder", str(mine), out]) == 2
    text = capsys.readouterr().err
    assert f"ringfence prepare: {table}: line 3: row_low 2 and row_high 90: not within the 16 rows of bert" in text
    assert (
        f"All cases are ready in {out}, which is not a prepared set yet. Repair the boxes and run the same command"
        in text
    )
    assert not (tmp_path / "set" / "manifest.json").exists()
    table.write_text(table.read_text().replace("90", "9"))
    assert main(["prepare", "folder", str(mine), out]) == 0
    text = capsys.readouterr().out
    for line in (
        "mine: 2 cases, 4 slices, 2 of them ready before",
        "masks       0 with, 2 without",
        "boxes       from boxes.csv",
        "classes     cyst",
        f"next: ringfence train {out}\n",
    ):
        assert line in text, line
