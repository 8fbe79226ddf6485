"""Predictions: the likeliest class of every voxel, where and how the image came; and nothing half-written."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
import torch
from numpy.typing import NDArray
from torch import nn

from ringfence.weak.inference import export
from ringfence.weak.inference.export import Failure, Output, Prediction, predict_cases
from ringfence.weak.inference.image_cases import check_channels, find_cases
from ringfence.weak.inference.model_file import ModelCard
from ringfence.weak.inference.overlays import COLOURS, overlay_sheet, tinted
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing, normalised
from ringfence.weak.volumes import read_volume
from ringfence.weak.volumes.orientation import axes, upright

RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(0, 1000, (5, 12, 10)).astype(np.int16)  # z, y, x


def bright(
    size: tuple[int, int],
    channels: tuple[str, ...] = ("T2",),
    patch: tuple[int, int, int] | None = None,
    steep: float = 60.0,
) -> tuple[Tempered, ModelCard]:
    """A model whose foreground is where the channels' mean is above one half."""
    path = "torch.nn.Conv2d" if patch is None else "torch.nn.Conv3d"
    args = {"in_channels": len(channels), "out_channels": 2, "kernel_size": 1}
    network = build_network(path, args)
    with torch.no_grad():
        network.weight.zero_()
        network.weight[1] = steep / len(channels)
        network.bias.copy_(torch.tensor([0.0, -0.5 * steep]))
    return Tempered(network), ModelCard(path, args, channels, ("prostate",), Preprocessing(size), patch)


def write_mhd(path: Path, voxels: NDArray) -> Path:
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing((0.1 + 0.2, 0.625, 3.6000001))
    image.SetOrigin((-97.123456789012, 1e-3 / 3, 30.0))
    angle = 0.3
    image.SetDirection((np.cos(angle), -np.sin(angle), 0, np.sin(angle), np.cos(angle), 0, 0, 0, 1))
    sitk.WriteImage(image, str(path), True)
    return path


def write_nifti(path: Path, voxels: NDArray, affine: NDArray | None = None) -> Path:
    if affine is None:
        affine = np.array([[-0.3, 0.01, 0, 1.1], [0.02, 0.7, 0, 2.2], [0, 0, 3.3, -3.3], [0, 0, 0, 1]])
    image = nibabel.Nifti1Image(voxels.transpose(), affine)
    image.set_sform(affine, code=1)
    image.set_qform(affine, code=1, strip_shears=True)
    nibabel.save(image, path)
    return path


def predicted(
    model: tuple[Tempered, ModelCard], images: Path, out: Path, **options: bool
) -> list[Prediction | Failure]:
    output = Output(out, options.pop("probabilities", False), options.pop("overlays", False))
    with output.opened({}):
        results = list(predict_cases(find_cases(images), Predictor(*model, device="cpu", **options), output))
        output.close()
    return results


def half(voxels: NDArray) -> NDArray:
    """What ``bright`` should find, by NumPy alone."""
    low, high = np.percentile(voxels, (0.5, 99.5))
    return (np.round(255 * np.clip((voxels - low) / (high - low), 0, 1)) > 127.5).astype(np.uint8)


@pytest.mark.parametrize("name", ["Case00.mhd", "a.mha"])
def test_metaimage_keeps_its_geometry_to_the_last_digit(name: str, tmp_path: Path) -> None:
    source = write_mhd(tmp_path / name, GREY)
    (result,) = predicted(bright((12, 10)), source, tmp_path / "out", probabilities=True)
    question, answer = sitk.ReadImage(str(source)), sitk.ReadImage(str(tmp_path / "out" / name))
    assert (answer.GetSize(), answer.GetSpacing()) == (question.GetSize(), question.GetSpacing())
    assert (answer.GetOrigin(), answer.GetDirection()) == (question.GetOrigin(), question.GetDirection())
    assert answer.GetPixelID() == sitk.sitkUInt8
    assert np.array_equal(sitk.GetArrayFromImage(answer), half(GREY))
    assert isinstance(result, Prediction)
    assert result.voxels == {"prostate": int(half(GREY).sum())}
    assert result.file == tmp_path / "out" / name
    share = sitk.ReadImage(str(tmp_path / "out" / f"{name[:-4]}_prostate_probability{name[-4:]}"))
    unit = normalised(GREY).astype(np.float64) / 255
    assert np.allclose(sitk.GetArrayFromImage(share), 1 / (1 + np.exp(30 - 60 * unit)), atol=1e-5)


@pytest.mark.parametrize("name", ["b.nii.gz", "c.nii"])
def test_nifti_keeps_its_geometry(name: str, tmp_path: Path) -> None:
    source = write_nifti(tmp_path / name, GREY)
    predicted(bright((12, 10)), tmp_path / name, tmp_path / "out")
    question, answer = nibabel.load(source), nibabel.load(tmp_path / "out" / name)
    assert np.array_equal(answer.affine, question.affine)
    for code in ("get_sform", "get_qform"):
        ours, theirs = getattr(answer, code)(coded=True), getattr(question, code)(coded=True)
        assert np.array_equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
    assert answer.header.get_zooms() == question.header.get_zooms()
    assert answer.get_data_dtype() == np.uint8
    assert np.array_equal(np.asanyarray(answer.dataobj), half(GREY).transpose())


def disc(side: int) -> NDArray:
    """A soft disc, off the centre."""
    y, x = np.mgrid[:side, :side] / side
    distance = np.hypot(y - 0.41, x - 0.57)
    return (1000 / (1 + np.exp((distance - 0.22) * 40))).astype(np.int16)[None].repeat(3, axis=0)


@pytest.mark.parametrize("patch", [None, (2, 16, 16)])
def test_another_size_moves_nothing_and_keeps_edges_smooth(
    patch: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    """At a third of the size and back: closer to the truth than any mask of the small size could be."""
    image = disc(96)
    (result,) = predicted(
        bright((32, 32), patch=patch, steep=8.0), write_mhd(tmp_path / "a.mhd", image), tmp_path / "out"
    )
    assert isinstance(result, Prediction)
    mask, truth = read_volume(result.file).voxels.astype(bool), half(image).astype(bool)
    assert np.allclose(np.argwhere(mask).mean(axis=0), np.argwhere(truth).mean(axis=0), atol=0.1)
    dice = 2 * (mask & truth).sum() / (mask.sum() + truth.sum())
    blocks = half(image)[:, 1::3, 1::3].repeat(3, axis=1).repeat(3, axis=2).astype(bool)
    assert dice > 0.985
    assert dice > 2 * (blocks & truth).sum() / (blocks.sum() + truth.sum())


@pytest.mark.parametrize("patch", [(3, 8, 8), (8, 16, 16), (5, 12, 10)])
def test_patches_cover_a_volume_larger_or_smaller_than_they(patch: tuple[int, int, int], tmp_path: Path) -> None:
    (result,) = predicted(bright((12, 10), patch=patch), write_mhd(tmp_path / "a.mhd", GREY), tmp_path / "out")
    assert isinstance(result, Prediction)
    assert np.array_equal(read_volume(result.file).voxels, half(GREY))


@pytest.mark.parametrize("patch", [(8, 16, 16), (8, 12, 10), (5, 12, 16)])
def test_what_is_missing_of_a_patch_is_after_the_end_as_in_training(patch: tuple[int, int, int]) -> None:
    """Against the network itself, on a volume filled up by NumPy: after two layers, filling and border differ."""
    layers = [nn.Conv3d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv3d(3, 2, 3, padding=1)]
    network = Tempered(nn.Sequential(*layers))
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_()
    card = ModelCard("torch.nn.Sequential", {}, ("T2",), ("prostate",), Preprocessing((12, 10)), patch)
    image = normalised(GREY)[:, None]
    answer = torch.cat(list(Predictor(network, card, device="cpu")(image, (12, 10))))
    filled = np.zeros(patch, np.float32)
    filled[:5, :12, :10] = image[:, 0] / 255.0
    with torch.no_grad():
        expected = network(torch.from_numpy(filled)[None, None]).softmax(dim=1)[0, :, :5, :12, :10]
    torch.testing.assert_close(answer, expected.transpose(0, 1), atol=1e-5, rtol=0.0)


def test_batches_do_not_matter(tmp_path: Path) -> None:
    image = normalised(GREY)[:, None]
    network, card = bright((12, 10), steep=3.0)
    whole = torch.cat(list(Predictor(network, card, device="cpu", batch=64)(image, (12, 10))))
    single = torch.cat(list(Predictor(network, card, device="cpu", batch=1)(image, (12, 10))))
    assert whole.shape == (5, 2, 12, 10)
    assert torch.allclose(whole, single, atol=1e-6)


def test_flips_are_averaged_and_turned_back() -> None:
    """Against NumPy: the logit is the left neighbour, so flipping takes the right one, and up-down changes nothing."""
    network = build_network(
        "torch.nn.Conv2d", {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1}
    )
    with torch.no_grad():
        network.weight.zero_()
        network.bias.zero_()
        network.weight[1, 0, 1, 0] = 4.0
    card = ModelCard(
        "torch.nn.Conv2d", {}, ("T2",), ("prostate",), Preprocessing((12, 10)), flips=("left-right", "up-down")
    )
    image = normalised(GREY)[:, None]
    (answer,) = Predictor(Tempered(network), card, device="cpu")(image, (12, 10))
    padded = np.pad(image[:, 0] / 255.0, ((0, 0), (0, 0), (1, 1)))
    left, right = (1 / (1 + np.exp(-4.0 * padded[:, :, at : at + 10])) for at in (0, 2))
    assert np.allclose(answer[:, 1].numpy(), (left + right) / 2, atol=1e-6)
    for unflipped in (
        Predictor(Tempered(network), card, device="cpu", flips=False),
        Predictor(Tempered(network), replace(card, flips=()), device="cpu"),  # it was judged without them
    ):
        (plain,) = unflipped(image, (12, 10))
        assert np.allclose(plain[:, 1].numpy(), left, atol=1e-6)

    levelled, card = Tempered(network), replace(card, levels=(float(np.log(2.0)),))
    levelled.level(card.levels)
    (answer,) = Predictor(levelled, card, device="cpu")(image, (12, 10))
    mean = (left + right) / 2
    assert np.allclose(answer[:, 1].numpy(), 2 * mean / (1 + mean), atol=1e-6)  # of the mean, not of each flip
    (plain,) = Predictor(levelled, card, device="cpu", flips=False)(image, (12, 10))
    assert np.allclose(plain[:, 1].numpy(), 2 * left / (1 + left), atol=1e-6)


def test_channels_as_files_and_as_a_fourth_axis(tmp_path: Path) -> None:
    other = RANDOM.integers(0, 50, GREY.shape).astype(np.float32)
    (tmp_path / "files").mkdir()
    write_nifti(tmp_path / "files/P_0001.nii.gz", other)
    write_nifti(tmp_path / "files/P_0000.nii.gz", GREY.astype(np.float32))
    write_nifti(tmp_path / "four.nii.gz", np.stack([GREY, other]))
    model = bright((12, 10), ("T2", "ADC"))
    wanted = (normalised(GREY).astype(int) + normalised(other)) > 255
    for images, name in (("files", "P"), ("files/P_0000.nii.gz", "P"), ("four.nii.gz", "four")):
        out = tmp_path / f"out-{images.replace('/', '-')}"
        (result,) = predicted(model, tmp_path / images, out)
        assert isinstance(result, Prediction), result
        assert {file.name for file in out.iterdir()} == {f"{name}.nii.gz", "predictions.csv"}
        answer = nibabel.load(result.file)
        assert answer.shape == (10, 12, 5)
        assert np.array_equal(answer.affine, nibabel.load(tmp_path / "four.nii.gz").affine)
        sure = normalised(GREY).astype(int) + normalised(other) != 255
        assert np.array_equal(np.asanyarray(answer.dataobj).transpose()[sure], wanted[sure])


def test_what_is_a_case(tmp_path: Path) -> None:
    for name in (
        "b_0000.nii",
        "b_0001.nii.gz",
        "p_0001.mhd",
        "p_0002.mhd",
        "c.mha",
        "c_segmentation.mhd",
        "._c.nii",
        "x.txt",
    ):
        (tmp_path / name).touch()
    found = {case.name: [file.name for file in case.files] for case in find_cases(tmp_path)}
    assert found == {
        "b": ["b_0000.nii", "b_0001.nii.gz"],
        "c": ["c.mha"],
        "p_0001": ["p_0001.mhd"],
        "p_0002": ["p_0002.mhd"],
    }
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        find_cases(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"x.txt is not a volume: its name should end in .nii"):
        find_cases(tmp_path / "x.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty holds no volumes"):
        find_cases(tmp_path / "empty")


def test_a_wrong_number_of_channels_names_both(tmp_path: Path) -> None:
    one, two = bright((8, 8))[1], bright((8, 8), ("T2", "ADC"))[1]
    for name in ("a_0000.nii.gz", "a_0001.nii.gz", "b_0000.nii.gz", "b_0001.nii.gz"):
        write_nifti(tmp_path / name, GREY)
    check_channels(find_cases(tmp_path), two)
    wanted = r"takes 1 channel \(T2\), and a has 2: a_0000.nii.gz, a_0001.nii.gz \(and so the other 1\)"
    with pytest.raises(ValueError, match=wanted):
        check_channels(find_cases(tmp_path), one)
    (tmp_path / "a_0001.nii.gz").rename(tmp_path / "a_0002.nii.gz")
    with pytest.raises(ValueError, match=r"has 2: a_0000.nii.gz, a_0002.nii.gz; they should be a_0000, a_0001$"):
        check_channels(find_cases(tmp_path)[:1], two)
    four = write_nifti(tmp_path / "four.nii.gz", np.stack([GREY] * 4))
    with pytest.raises(ValueError, match=r"takes 1 channel \(T2\), and four has 4: four.nii.gz"):
        check_channels(find_cases(four), one)
    plain = write_mhd(tmp_path / "plain.mhd", GREY)
    with pytest.raises(ValueError, match=r"takes 2 channels \(T2, ADC\), and plain has 1: plain.mhd"):
        check_channels(find_cases(plain), two)
    (tmp_path / "twice").mkdir()
    write_nifti(tmp_path / "twice/q.nii", GREY)
    write_nifti(tmp_path / "twice/q.nii.gz", GREY)
    with pytest.raises(ValueError, match=r"q has 2: q.nii, q.nii.gz"):
        check_channels(find_cases(tmp_path / "twice"), one)


def test_a_bad_case_does_not_stop_the_others(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    write_mhd(images / "good.mhd", GREY)
    write_mhd(images / "cut.mhd", GREY)
    (images / "cut.zraw").write_bytes((images / "cut.zraw").read_bytes()[:50])
    write_nifti(images / "nan.nii.gz", np.where(GREY > 500, np.nan, 1.0))
    (images / "noise.nii.gz").write_bytes(b"noise")
    write_nifti(images / "two_0000.nii.gz", GREY)
    write_nifti(images / "two_0001.nii.gz", GREY)
    results = {result.name: result for result in predicted(bright((12, 10)), images, tmp_path / "out")}
    failures = {name: one.reason for name, one in results.items() if isinstance(one, Failure)}
    assert isinstance(results["good"], Prediction)
    assert failures.keys() == {"cut", "nan", "noise", "two"}
    assert "cut.mhd: the header promises" in failures["cut"] or "is damaged" in failures["cut"]
    assert "voxels are NaN or infinite" in failures["nan"]
    assert "noise.nii.gz cannot be read" in failures["noise"]
    assert "takes 1 channel (T2), and two has 2" in failures["two"]
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["good.mhd", "good.zraw", "predictions.csv"]


def test_weights_that_are_not_finite_are_no_answer(tmp_path: Path) -> None:
    network, card = bright((12, 10))
    with torch.no_grad():
        network.network.bias.fill_(float("nan"))
    (result,) = predicted((network, card), write_mhd(tmp_path / "a.mhd", GREY), tmp_path / "out")
    assert isinstance(result, Failure)
    assert "not finite" in result.reason
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_half_written(problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask is written, the probabilities cannot be: neither is left, and the work stops."""
    written = export.write_volume

    def fail_later(path: Path, *rest: object) -> None:
        if "probability" in path.name:
            raise problem
        written(path, *rest)

    monkeypatch.setattr(export, "write_volume", fail_later)
    source = write_mhd(tmp_path / "a.mhd", GREY)
    with pytest.raises((OSError, KeyboardInterrupt)) as stop:
        predicted(bright((12, 10)), source, tmp_path / "out", probabilities=True)
    if not isinstance(problem, KeyboardInterrupt):
        assert str(stop.value).startswith(f"{tmp_path / 'out' / 'a.mhd'} cannot be written: the disk is full")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["unfinished.json"]


def test_a_mask_s_header_comes_after_its_data_and_after_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever finds CASE.mhd finds a finished case."""
    moved: list[str] = []
    rename = Path.replace

    def watched(source: Path, target: Path) -> Path:
        if source.parent != target.parent:
            moved.append(target.name)
        return rename(source, target)

    listed = Path.iterdir
    monkeypatch.setattr(Path, "replace", watched)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listed(folder))))  # the mask before the others
    predicted(bright((12, 10)), write_mhd(tmp_path / "a.mhd", GREY), tmp_path / "out", probabilities=True)
    assert moved[3:] == ["a_prostate_probability.mhd", "a.mhd"]
    assert sorted(moved[:3]) == [".a.found", "a.zraw", "a_prostate_probability.zraw"]


@pytest.mark.gpu
@pytest.mark.parametrize("patch", [None, (3, 8, 8)])
def test_a_gpu_finds_the_same(patch: tuple[int, int, int] | None) -> None:
    image, answers = normalised(GREY)[:, None], {}
    for device in ("cpu", "cuda"):
        network, card = bright((12, 10), patch=patch, steep=3.0)
        predictor = Predictor(network, replace(card, flips=("left-right",)), device=device)
        answers[device] = torch.cat(list(predictor(image, (24, 20)))).cpu()
    assert torch.allclose(answers["cpu"], answers["cuda"], atol=1e-3)


def test_only_a_new_or_empty_folder_is_written_to(tmp_path: Path) -> None:
    def begun(folder: Path) -> None:
        with Output(folder).opened({"IMAGES": "a"}):
            pass

    (tmp_path / "empty").mkdir()
    begun(tmp_path / "empty")
    begun(tmp_path / "deep/new")
    assert (tmp_path / "deep/new/unfinished.json").is_file()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="full already holds files: name a new folder. Nothing was changed"):
        begun(tmp_path / "full")
    with pytest.raises(FileExistsError, match=r"mine.txt is a file; masks need a folder"):
        begun(tmp_path / "full/mine.txt")
    with pytest.raises(OSError, match=r"mine.txt/deeper cannot be written: it would be inside a file; choose anot"):
        begun(tmp_path / "full/mine.txt/deeper")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    assert (tmp_path / "full/mine.txt").read_text() == "mine"


def test_what_a_killed_process_left_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """D12."""
    (tmp_path / "out/.unfinished-abc").mkdir(parents=True)
    for name in (".a.nii.gz.12.part", ".unfinished-abc/a.nii.gz", ".ringfence.lock"):
        (tmp_path / "out" / name).write_text("half a patient")
    predicted(bright((12, 10)), write_nifti(tmp_path / "a.nii.gz", GREY), tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"a.nii.gz", "predictions.csv"}


def test_classes_become_names_of_files_that_differ() -> None:
    assert export._file_names(["tumour core", "edema"]) == ["tumour-core", "edema"]
    assert export._file_names(["a/b", "a b"]) == ["a-b-1", "a-b-2"]


# Pictures


def test_a_slice_is_tinted_within_its_mask_and_outlined() -> None:
    image = np.full((1, 20, 20), 102, dtype=np.uint8)
    mask = np.zeros_like(image)
    mask[0, 5:15, 5:15] = 2
    picture = tinted(image, mask)
    assert picture.shape == (1, 200, 200, 3)
    assert np.allclose(picture[0, 10, 10], 0.4)
    assert np.allclose(picture[0, 100, 100], 0.75 * 0.4 + 0.25 * np.array(COLOURS[1]))
    assert np.allclose(picture[0, 50, 100], COLOURS[1])
    assert np.allclose(picture[0, 49, 100], 0.4)
    assert tinted(image, mask, aspect=0.5).shape == (1, 100, 200, 3)


@pytest.mark.parametrize("slices", [1, 7, 50])
def test_a_sheet_holds_slices_of_any_volume(slices: int, tmp_path: Path) -> None:
    from matplotlib.image import imread

    image = np.zeros((slices, 30, 40), dtype=np.uint8)
    overlay_sheet(tmp_path / "a.png", image, image, ("prostate", "lesion"), title="a")
    picture = imread(tmp_path / "a.png")
    columns, rows = min(6, slices), -(-min(slices, 36) // 6)
    assert picture.shape[:2] == (rows * 154 - 4 + 34, columns * 204 - 4)


def test_overlays_are_drawn(tmp_path: Path) -> None:
    images = write_nifti(tmp_path / "a.nii.gz", GREY)
    predicted(bright((12, 10)), images, tmp_path / "out", overlays=True)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a.nii.gz", "a.png", "predictions.csv"]


def test_axes_and_what_is_upright(tmp_path: Path) -> None:
    """SimpleITK writes the same volume in both formats: the axes must be the same."""
    image = sitk.GetImageFromArray(GREY)
    for direction, codes, flips in (
        ((1, 0, 0, 0, 1, 0, 0, 0, 1), "LPS", ()),
        ((-1, 0, 0, 0, -1, 0, 0, 0, 1), "RAS", (-2, -1)),
        ((0, 0, 1, 1, 0, 0, 0, -1, 0), "PIL", ()),
        ((0, 0, 1, -1, 0, 0, 0, 1, 0), "ASL", (-2, -1)),
    ):
        image.SetDirection(direction)
        for name in ("a.mhd", "a.nii.gz"):
            sitk.WriteImage(image, str(tmp_path / name))
            volume = read_volume(tmp_path / name)
            assert (axes(volume), upright(volume)) == (codes, flips), name


@pytest.mark.parametrize("name", ["a$\\frac{$", "u\udcff", "e\x1b[31m", "患者"])
def test_any_name_can_be_drawn(name: str, tmp_path: Path) -> None:
    """D13: one that matplotlib took for a formula ended the whole batch."""
    images = write_nifti(tmp_path / f"{name}.nii.gz", GREY)
    network, card = bright((12, 10))
    (result,) = predicted((network, replace(card, classes=(r"$\frac{$",))), images, tmp_path / "out", overlays=True)
    assert isinstance(result, Prediction)
    assert (tmp_path / "out" / f"{name}.png").exists()
