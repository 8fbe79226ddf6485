"""Masks of PNGs: PNGs, which are scored as others are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import COLOURS, NAMES, picture, pictures, save, truth
from ringfence.weak import evaluate, predict
from ringfence.weak.inference import export
from ringfence.weak.inference.model_file import ModelCard, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.volumes import read_volume


def model(path: Path, channels: int) -> Path:
    """Foreground is where the first channel is above one half."""
    args = {"in_channels": channels, "out_channels": 2, "kernel_size": 1}
    network = build_network("torch.nn.Conv2d", args)
    network.weight.data.zero_()
    network.weight.data[1, 0] = 60.0
    network.bias.data[:] = 0.0
    network.bias.data[1] = -30.0
    names = ("image",) if channels == 1 else COLOURS
    save_model(
        path, Tempered(network), ModelCard("torch.nn.Conv2d", args, names, ("cell",), Preprocessing((16, 32)))
    )
    return path


@pytest.mark.parametrize("channels", [1, 3])
def test_masks_are_pictures_too(tmp_path: Path, channels: int) -> None:
    folder, out = pictures(tmp_path / "mine", channels), tmp_path / "out"
    done = predict(model(tmp_path / "m.safetensors", channels), folder, out, overlays=True, probabilities=True)
    assert not done.failed
    assert [one.name for one in done.made] == list(NAMES)  # numbered, and yet no channels
    for number, name in enumerate(NAMES):
        with Image.open(out / f"{name}.png") as image:
            assert image.mode == "L"
            assert np.array_equal(np.asarray(image), truth(number))
        share = read_volume(out / f"{name}_cell_probability.nii.gz")
        assert np.array_equal(share.voxels[0] > 0.5, truth(number))
        with Image.open(out / f"{name}_overlay.png") as image:
            assert image.width > 100
    scores = evaluate(out, folder / "masks")
    assert scores.dice == {1: 1.0}
    assert (len(scores.scores), scores.failed, {one.unit for one in scores.scores}) == (5, (), {"voxels"})
    mixed = evaluate(out / f"{NAMES[0]}.png", folder / "masks" / f"{NAMES[1]}.png")
    assert mixed.dice[1] == pytest.approx(2 * 6 / (6 + 7))


def test_one_slice_is_not_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(export, "overlay_sheet", lambda path, *_, title, **__: titles.append(title) or path.touch())
    folder = pictures(tmp_path / "mine", 1)
    predict(model(tmp_path / "m.safetensors", 1), folder / f"{NAMES[0]}.png", tmp_path / "out", overlays=True)
    assert titles == [f"{NAMES[0]}: 1 slice"]


def test_a_picture_of_other_channels_is_passed_over(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 3)
    save(folder / "im_0002.png", picture(2, 1))
    done = predict(model(tmp_path / "m.safetensors", 3), folder, tmp_path / "out")
    assert [one.name for one in done.made] == [NAMES[0], NAMES[1], NAMES[3], NAMES[4]]
    (failed,) = done.failed
    assert failed.reason == "the model takes 3 channels (red, green, blue), and im_0002 has 1: im_0002.png"


def test_a_coloured_mask_is_no_mask(tmp_path: Path) -> None:
    save(tmp_path / "a.png", picture(0, 3))
    save(tmp_path / "b.png", truth(0))
    result = evaluate(tmp_path / "b.png", tmp_path / "a.png")
    assert [one.reason for one in result.failed] == [
        f"{tmp_path / 'a.png'} is in colour, and grey is needed here: of a mask, its labels"
    ]
