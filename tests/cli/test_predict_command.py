"""`ringfence predict` and `ringfence evaluate`: from images to scores, and mistakes answered by name."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from children import python
from ringfence.cli import main
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

PROMISE12 = Path(
    os.environ.get("RINGFENCE_PROMISE12", Path(__file__).parents[2].parent / "shared" / "data" / "promise12")
)
UNET = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "features": [4] * 6, "upsample": "nontrainable"}
RANDOM = np.random.default_rng(0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Foreground is where the image is bright."""
    args = {"in_channels": 1, "out_channels": 2, "kernel_size": 1}
    network = build_network("torch.nn.Conv2d", args)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([0.0, 20.0]).view(2, 1, 1, 1))
        network.bias.copy_(torch.tensor([0.0, -10.0]))
    card = ModelCard("torch.nn.Conv2d", args, ("T2",), ("prostate",), Preprocessing((16, 16)))
    save_model(tmp_path / "model.safetensors", Tempered(network), card)
    return tmp_path / "model.safetensors"


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two patients with a bright cube each, and its masks beside them."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in (0, 1):
        mask = np.zeros((4, 16, 16), dtype=np.uint8)
        mask[1:3, 4:12, 4 + number : 12] = 1
        for voxels, name in ((900 * mask.astype(np.int16), "P{}.mhd"), (mask, "P{}_segmentation.mhd")):
            image = sitk.GetImageFromArray(voxels)
            image.SetSpacing((0.5, 0.5, 4.0))
            sitk.WriteImage(image, str(folder / name.format(number)))
    return folder


def test_flips_are_averaged_unless_told_not_to(model: Path, scans: Path, tmp_path: Path) -> None:
    """A network that shifts what is bright by a column: its average over flips is no longer certain."""
    args = {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1}
    network = build_network("torch.nn.Conv2d", args)
    with torch.no_grad():
        network.weight.zero_()
        network.weight[1, 0, 1, 0] = 20.0
        network.bias.copy_(torch.tensor([0.0, -10.0]))
    card = ModelCard(
        "torch.nn.Conv2d", args, ("T2",), ("prostate",), Preprocessing((16, 16)), flips=("left-right",)
    )
    save_model(model, Tempered(network), card)
    found = []
    for options in ([], ["--no-flips"]):
        out = tmp_path / f"out{len(found)}"
        assert main(["predict", str(model), str(scans / "P0.mhd"), str(out), "--probabilities", *options]) == 0
        found.append(sitk.GetArrayFromImage(sitk.ReadImage(str(out / "P0_prostate_probability.mhd")))[1, 6])
    assert found[1][[4, 5, 11, 12]].round().tolist() == [0.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(found[0][[3, 4, 5, 12]], [0.5, 0.5, 1.0, 0.5], atol=1e-3)


def test_what_lies_apart_is_cleared_if_asked(model: Path, scans: Path, tmp_path: Path) -> None:
    image = sitk.ReadImage(str(scans / "P0.mhd"))
    voxels = sitk.GetArrayFromImage(image)
    voxels[0, 0, 0] = voxels.max()
    spotted = sitk.GetImageFromArray(voxels)
    spotted.CopyInformation(image)
    sitk.WriteImage(spotted, str(tmp_path / "spotted.mhd"))
    found = []
    for options in ([], ["--largest"]):
        out = tmp_path / f"out{len(found)}"
        assert main(["predict", str(model), str(tmp_path / "spotted.mhd"), str(out), *options]) == 0
        found.append(sitk.GetArrayFromImage(sitk.ReadImage(str(out / "spotted.mhd"))))
    assert found[0][0, 0, 0] == 1
    assert found[1][0, 0, 0] == 0
    assert found[1].sum() == found[0].sum() - 1 == 128


def test_from_images_to_scores(
    model: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["predict", str(model), str(scans), str(out), "--probabilities", "--overlays", "--no-flips"]) == 0
    printed = capsys.readouterr().out
    assert "P0  prostate 128 voxels (0.1 ml); uncertainty 0.00" in printed
    first, _ = csv.DictReader((out / "predictions.csv").read_text().splitlines())
    assert float(first.pop("uncertainty")) < 1e-3
    assert first == {
        "case": "P0",
        "class": "prostate",
        "voxels": "128",
        "millilitres": "0.128",
        "flip_agreement": "",
    }
    assert f"2 of 2 cases segmented in {out}" in printed
    assert {file.name for file in out.iterdir()} == {
        f"P{number}{ending}"
        for number in (0, 1)
        for ending in (".mhd", ".zraw", ".png", "_prostate_probability.mhd", "_prostate_probability.zraw")
    } | {"predictions.csv"}
    assert main(["evaluate", str(out), str(scans)]) == 0
    printed = capsys.readouterr().out
    assert "HD95 (mm)" in printed
    assert "1.000" in printed
    rows = list(csv.DictReader((out / "evaluation.csv").read_text().splitlines()))
    assert [(row["case"], row["dice"], row["hd95"], row["true_voxels"]) for row in rows] == [
        ("P0", "1", "0", "128"),
        ("P1", "1", "0", "112"),
    ]
    assert main(["evaluate", str(out / "P0.mhd"), str(scans / "P1_segmentation.mhd"), "--out", str(tmp_path / "one.csv")]) == 0  # fmt: skip
    (row,) = csv.DictReader((tmp_path / "one.csv").read_text().splitlines())
    assert float(row["dice"]) == pytest.approx(2 * 112 / 240, abs=1e-5)
    assert float(row["hd95"]) == pytest.approx(0.5)


def test_bad_cases_are_listed_and_the_status_says_so(
    model: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (scans / "P1.raw").write_bytes(b"short")
    (scans / "P2.nii.gz").write_bytes(b"noise")
    out = tmp_path / "out"
    assert main(["predict", str(model), str(scans), str(out)]) == 2
    text = capsys.readouterr()
    assert text.out.rstrip().endswith(f"1 of 3 cases segmented in {out}")  # the others are told once, below
    first, *others = text.err.splitlines()
    assert first == "ringfence predict: 2 of 3 cases failed:"
    assert [line.split(":")[0] for line in others] == ["  P1", "  P2"]
    assert {file.name for file in out.iterdir()} == {"P0.mhd", "P0.zraw", "predictions.csv", "unfinished.json"}
    only = tmp_path / "only"
    assert main(["predict", str(model), str(scans / "P2.nii.gz"), str(only)]) == 2  # nothing is finished there,
    assert (
        main(["predict", str(model), str(scans / "P0.mhd"), str(only), "--largest"]) == 0
    )  # so anything may begin
    assert {file.name for file in only.iterdir()} == {"P0.mhd", "P0.zraw", "predictions.csv"}
    capsys.readouterr()
    assert main(["evaluate", str(out), str(scans)]) == 2
    text = capsys.readouterr()
    assert "ringfence evaluate: 1 of 2 cases are not in these scores:" in text.err
    assert "P1: no mask in" in text.err
    assert len((out / "evaluation.csv").read_text().splitlines()) == 2


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The message of a command that must fail with one line and nothing else."""
    assert main([str(argument) for argument in arguments]) == 2
    text = capsys.readouterr()
    assert text.out == ""
    (line,) = text.err.splitlines()
    return line


def test_mistakes_of_predict(model: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    assert "full already holds files: name a new folder. Nothing was changed" in one_line(
        capsys, "predict", model, scans, full
    )
    assert [file.name for file in full.iterdir()] == ["mine"]
    assert "nothing.pt is not a model: there is no such file" in one_line(
        capsys, "predict", tmp_path / "nothing.pt", scans, out
    )
    assert "is not a model that can be used" in one_line(capsys, "predict", scans / "P0.mhd", scans, out)
    assert "nowhere does not exist" in one_line(capsys, "predict", model, tmp_path / "nowhere", out)
    assert "--batch: 0 must be at least 1" in one_line(capsys, "predict", model, scans, out, "--batch", "0")
    if not torch.cuda.is_available():
        assert "--device cuda: torch sees no GPU" in one_line(
            capsys, "predict", model, scans, out, "--device", "cuda"
        )
    for name in ("P0", "P1"):
        (scans / f"{name}.mhd").rename(scans / f"{name}_0000.mhd")
        (scans / f"{name}_0001.mhd").write_text((scans / f"{name}_0000.mhd").read_text())
    assert (
        "the model takes 1 channel (T2), and P0 has 2: P0_0000.mhd, P0_0001.mhd (and so the other 1)"
        in one_line(capsys, "predict", model, scans, out)
    )
    assert not out.exists()


def test_mistakes_of_evaluate(scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scans / "evaluation.csv").write_text("mine")
    assert "evaluation.csv is there already: choose another with --out, or replace it with --overwrite" in one_line(
        capsys, "evaluate", scans, scans
    )
    assert (scans / "evaluation.csv").read_text() == "mine"
    assert "--classes: 0 must be from 1 to 255" in one_line(capsys, "evaluate", scans, scans, "--classes", "0")
    assert "--spacing: [1.0, -1.0, 1.0] must be three lengths above 0" in one_line(
        capsys, "evaluate", scans, scans, "--spacing", "1", "-1", "1"
    )
    assert "--labels: 1 256 must be from 1 to 255" in one_line(
        capsys, "evaluate", scans, scans, "--labels", "1", "256"
    )
    assert "--classes and --labels each say which labels" in one_line(
        capsys, "evaluate", scans, scans, "--labels", "1", "--classes", "1"
    )
    assert "is a folder; name a file in it" in one_line(capsys, "evaluate", scans, scans, "--out", tmp_path)
    assert main(["evaluate", str(scans), str(scans), "--overwrite"]) == 0
    assert (scans / "evaluation.csv").read_text().startswith("case,label,dice,hd95")
    empty = tmp_path / "empty"
    empty.mkdir()
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((2, 4, 4), dtype=np.uint8)), str(empty / "a.mhd"))
    capsys.readouterr()
    assert "has any label; say which there are with --classes or --labels" in one_line(
        capsys, "evaluate", empty, empty
    )
    assert main(["evaluate", str(empty), str(empty), "--classes", "1"]) == 0
    assert "HD95 in voxels" in capsys.readouterr().out


def test_labels_that_are_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, voxels in (("ours", [0, 1, 2, 5]), ("theirs", [0, 1, 2, 2])):
        (tmp_path / folder).mkdir()
        image = sitk.GetImageFromArray(np.array(voxels, dtype=np.uint8).reshape(1, 2, 2))
        sitk.WriteImage(image, str(tmp_path / folder / "a.mhd"))
    assert (
        main(["evaluate", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--out", str(tmp_path / "a.csv")]) == 0
    )
    assert "Labels not evaluated (no truth has them): 5" in capsys.readouterr().out
    assert [line.split(",")[:3] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]] == [
        ["a", "1", "1"],
        ["a", "2", "0.666667"],
    ]


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(
    model: Path, scans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringfence.weak.inference import export

    read = export.read_channels

    def stopped(paths: list[Path]) -> object:
        if paths[0].name == "P1.mhd":
            raise KeyboardInterrupt
        return read(paths)

    monkeypatch.setattr(export, "read_channels", stopped)
    out, command = tmp_path / "out", ["predict", str(model), str(scans), str(tmp_path / "out")]
    assert main(command) == 130
    assert (
        f"stopped. What is finished in {out} stays (1 case of this call); the same command"
        in capsys.readouterr().err
    )
    assert {file.name for file in out.iterdir()} == {".P0.found", "P0.mhd", "P0.zraw", "unfinished.json"}
    (out / ".unfinished-abc").mkdir()  # as of a process that was killed
    assert (
        "not finished, with other options: repeat that one, or name a new folder. Nothing was changed"
        in one_line(capsys, *command, "--largest")
    )
    other = tmp_path / "other.safetensors"
    other.write_bytes(model.read_bytes())
    weights = load_file(model)
    with safe_open(model, "pt") as file:
        save_file(weights | {"network.bias": weights["network.bias"] + 1}, other, file.metadata())
    assert "with other CHECKPOINT" in one_line(capsys, "predict", other, scans, out)
    monkeypatch.undo()
    written = (out / "P0.mhd").stat().st_mtime_ns
    assert main(command) == 0
    assert f"2 of 2 cases segmented in {out}, 1 of them before" in capsys.readouterr().out
    names = {"P0.mhd", "P0.zraw", "P1.mhd", "P1.zraw", "predictions.csv"}
    assert {file.name for file in out.iterdir()} == names
    cases = [row["case"] for row in csv.DictReader((out / "predictions.csv").read_text().splitlines())]
    assert cases == ["P0", "P1"]  # the first is not forgotten
    assert (out / "P0.mhd").stat().st_mtime_ns == written
    assert "already holds files" in one_line(capsys, *command)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_help_needs_no_torch(command: str) -> None:
    code = f"import sys\nfrom ringfence.cli import main\ntry:\n    main(['{command}', '--help'])\nfinally:\n    assert 'torch' not in sys.modules"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


@pytest.mark.skipif(
    not (PROMISE12 / "native").is_dir(), reason=f"no PROMISE12 in {PROMISE12} (set RINGFENCE_PROMISE12)"
)
def test_a_patient_at_native_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network nobody has trained: its answer is worth nothing, but lies exactly where the patient does."""
    path = "monai.networks.nets.BasicUNet"
    card = ModelCard(path, UNET, ("T2",), ("prostate",), Preprocessing((64, 64)))
    save_model(tmp_path / "model.safetensors", Tempered(build_network(path, UNET)), card)
    source = PROMISE12 / "native" / "Case13.mhd"
    assert (
        main(
            ["predict", str(tmp_path / "model.safetensors"), str(source), str(tmp_path / "out"), "--device", "cpu"]
        )
        == 0
    )
    question, answer = sitk.ReadImage(str(source)), sitk.ReadImage(str(tmp_path / "out" / "Case13.mhd"))
    for fact in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
        assert getattr(answer, fact)() == getattr(question, fact)(), fact
    assert answer.GetSize() == (320, 320, 15)
    assert main(["evaluate", str(tmp_path / "out"), str(PROMISE12 / "native")]) == 2  # of the other two, no masks
    text = capsys.readouterr()
    assert "HD95 in voxels" in text.out
    assert "2 of 3 cases are not in these scores" in text.err
    (row,) = csv.DictReader((tmp_path / "out" / "evaluation.csv").read_text().splitlines())
    truth = sitk.GetArrayFromImage(sitk.ReadImage(str(PROMISE12 / "native" / "Case13_segmentation.mhd"))) > 0
    mask = sitk.GetArrayFromImage(answer) > 0
    assert float(row["dice"]) == pytest.approx(2 * (mask & truth).sum() / (mask.sum() + truth.sum()), abs=1e-5)


def test_labels_by_their_own_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voxels = np.zeros((2, 4, 4), dtype=np.uint8)
    voxels[0, :2] = 4
    sitk.WriteImage(sitk.GetImageFromArray(voxels), str(tmp_path / "a.mhd"))
    file = str(tmp_path / "a.mhd")
    assert main(["evaluate", file, file, "--labels", "4", "2", "--out", str(tmp_path / "s.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert [(row["label"], row["true_voxels"]) for row in rows] == [("2", "0"), ("4", "8")]
