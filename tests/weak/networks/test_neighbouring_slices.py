"""The mean over neighbouring slices, against scipy's convolution of each case; in parts, on ranks, in models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.ndimage import convolve1d

from prepared_sets import make_prepared
from ringfence.weak import BoxDataSettings, TrainingSettings, TrainSettings, box_task, from_preset, train
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.inference.model_file import read_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.neighbouring_slices import neighbours_averaged, with_neighbours
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.training.fit import make_data, make_module
from ringfence.weak.training.loading.around import AROUND, AROUND_CASE
from ringfence.weak.training.loading.data import SegmentationData

SHARES = st.floats(0.0, 1 / 3)


def reference(answers: np.ndarray, share: float) -> np.ndarray:
    """Of one case, by scipy; beyond its ends, slices are as at its ends."""
    return convolve1d(answers, [share, 1.0 - 2.0 * share, share], axis=0, mode="nearest")


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), share=SHARES, seed=st.integers(0, 99))
def test_no_case_sees_another(lengths: list[int], share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    cases = [random.random((length, 2, 3, 4)) for length in lengths]
    every, numbers = np.concatenate(cases), np.repeat(np.arange(len(lengths)), lengths)
    around = np.concatenate([every[:1], every, every[-1:]])
    case = torch.tensor(np.concatenate([numbers[:1], numbers, numbers[-1:]]))
    found = with_neighbours(torch.tensor(around), case, share)
    expected = np.concatenate([reference(one, share) for one in cases])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


@given(parts=st.lists(st.integers(0, 4), max_size=6), share=SHARES, seed=st.integers(0, 99))
def test_a_case_may_come_in_parts(parts: list[int], share: float, seed: int) -> None:
    answers = torch.rand(sum(parts), 2, 3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = list(neighbours_averaged(answers.split(parts), share)) if parts else []
    assert sum(map(len, found)) == len(answers)
    if len(answers):
        np.testing.assert_allclose(torch.cat(found).numpy(), reference(answers.numpy(), share), atol=1e-12)


SMALL = {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1}


def settings(prepared: Path, **changes: object) -> TrainSettings:
    return replace(
        from_preset(TrainSettings, "boxes"),
        data=BoxDataSettings(prepared=str(prepared)),
        training=TrainingSettings(epochs=1, batch_size=4, device="cpu", neighbours=0.3),
    ).changed({"network.class_path": "torch.nn.Conv2d", "network.init_args": SMALL, **changes})


@pytest.mark.parametrize("streamed", ["never", "always"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_validation_sees_beyond_its_batches(
    streamed: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of seven, and cases of other lengths; each rank has a share, and the slices around it."""
    monkeypatch.setattr("ringfence.weak.training.loading.data.VALIDATION_BATCH", 7)
    asked = settings(make_prepared(tmp_path / "set", cases=8).path, **{"data.streamed": streamed, "data.folds": 2})
    task = box_task(asked.data, asked.constraints)
    module = make_module(asked, task, "log_barrier", 0).eval()
    found = {}
    for rank in range(ranks):
        for batch in SegmentationData(task, 4, around=True, rank=rank, ranks=ranks).val_dataloader():
            if "ghost" not in batch:
                assert len(batch[AROUND]) == len(batch[AROUND_CASE]) == 2
                logits = module.judging.found(module.predicted, batch).softmax(dim=1).detach()
                found |= dict(zip(batch["index"].tolist(), logits, strict=True))
    plain = box_task(replace(asked.data, streamed="never"), asked.constraints).validation
    with torch.no_grad():
        answers, case = module.predicted(plain["image"]).softmax(dim=1).numpy(), plain["case"].numpy()
    expected = np.concatenate([reference(answers[case == number], 0.3) for number in np.unique(case)])
    assert len(np.unique(case)) > 1
    assert sorted(found) == list(range(len(expected)))
    np.testing.assert_allclose(np.stack([found[row] for row in sorted(found)]), expected, atol=1e-5)


@pytest.mark.parametrize("method", ["log_barrier", "full_supervision"])
def test_a_model_finds_slices_as_it_was_judged(method: str, tmp_path: Path) -> None:
    asked = settings(make_prepared(tmp_path / "set").path, method=method)
    train(asked, tmp_path / "run", console=Console(quiet=True))
    network, card = read_model(tmp_path / "run/model.safetensors", "torch.nn.Conv2d")
    assert card.neighbours == 0.3
    image = box_task(asked.data, asked.constraints).validation["image"].numpy()
    size, alone = card.preprocessing.size, replace(card, neighbours=0.0)
    each = torch.cat(list(Predictor(network, alone, device="cpu")(image, size)))
    for batch in (None, 1, 3):
        found = torch.cat(list(Predictor(network, card, device="cpu", batch=batch)(image, size)))
        np.testing.assert_allclose(found.numpy(), reference(each.numpy(), 0.3), rtol=1e-4, atol=1e-6)


def test_volumes_have_none(tmp_path: Path) -> None:
    asked = settings(make_prepared(tmp_path / "set").path).changed(
        {"data.patch": [4, 16, 16], "network.class_path": "torch.nn.Conv3d", "network.init_args": SMALL}
    )
    task = box_task(asked.data, asked.constraints)
    assert make_module(asked, task, "log_barrier", 0).judging.neighbours == 0.0


def test_nor_have_images_that_are_of_no_case() -> None:
    """Generated discs, each an image of its own."""
    asked = from_preset(SyntheticSettings, "synthetic-small", {"training.neighbours": 0.2})
    task = disc_task(asked.data, 0)
    module = make_module(asked, task, "log_barrier", 0)
    assert module.judging.neighbours == 0.0
    assert AROUND not in next(iter(make_data(asked, task, module, 0).val_dataloader()))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-0.1, "training.neighbours must be finite and not negative, got -0.1"),
        (math.nan, "training.neighbours must be finite and not negative, got nan"),
        (0.34, "training.neighbours is at most 1/3, the share of a slice itself, got 0.34"),
    ],
)
def test_what_is_no_share_is_refused(value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(neighbours=value)
