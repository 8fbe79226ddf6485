"""Trainings on several ranks are the same as one process's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from monai.losses.dice import DiceLoss
from ranks_training import ALIKE, asked, check_equal, dice, kept, network_of, run
from torch import Tensor

from children import quick_processes
from prepared_sets import make_prepared
from ringfence.weak.experiments.train import train
from ringfence.weak.ranks.launch import launch
from ringfence.weak.ranks.world import World
from ringfence.weak.training.together.global_batch import dice_loss

SIZES = (2, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trainings by one, two and four processes."""
    path = tmp_path_factory.mktemp("ranks")
    make_prepared(path / "set", cases=4, shape=(6, 12, 10))
    run(World(), path)
    with quick_processes():
        for size in SIZES:
            launch(run, size, "gloo", path)
    return path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*ALIKE, "accumulated", "unused", "augmented", "calibrated"])
def test_ranks_train_what_one_process_trains(folder: Path, name: str, size: int) -> None:
    """18 images in batches of 7, the last of which has fewer rows than there are ranks."""
    check_equal(kept(folder / "of 1" / name), kept(folder / f"of {size}" / name))
    files = {file.name for file in (folder / "of 1" / name).iterdir()}
    assert {file.name for file in (folder / f"of {size}" / name).iterdir()} == files


def test_parts_of_a_batch_are_the_whole_batch(folder: Path) -> None:
    """Without batch norms: with them, each part has its own mean."""
    whole = network_of(asked(folder, "log_barrier"), "Small", norm=False)
    train(whole, folder / "whole", progress=False)
    check_equal(kept(folder / "whole"), kept(folder / "of 1/accumulated"))


@pytest.mark.parametrize("size", SIZES)
def test_batch_norm_and_dice_loss_are_of_all_ranks(folder: Path, size: int) -> None:
    """In float64, with their gradients and running statistics; one process uses torch's own."""
    one = torch.load(folder / "rank0of1.pt", weights_only=True)
    several = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True) for rank in range(size)]
    for name, value in one["norm"].items():
        found: list[Tensor] = [theirs["norm"][name] for theirs in several]
        together = torch.stack(found).sum(dim=0) if "gradient" in name else found[-1]
        torch.testing.assert_close(together, value, rtol=1e-9, atol=1e-9, msg=name)
    torch.testing.assert_close(sum(theirs["dice"] for theirs in several), one["dice"])
    # of bfloat16, but for its last digit
    torch.testing.assert_close(sum(theirs["rounded"] for theirs in several), one["rounded"], rtol=0.01, atol=0.01)


def test_dice_loss_is_monais() -> None:
    logits, labels = torch.randn(3, 3, 6, 5), torch.randint(0, 3, (3, 6, 5))
    monai = DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True)
    torch.testing.assert_close(dice_loss(logits, labels), monai(logits, labels[:, None]))
    assert dice(World())[-1] > 0


@pytest.mark.parametrize("size", SIZES)
def test_one_rank_that_diverges_ends_all(folder: Path, size: int) -> None:
    found = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True) for rank in range(size)]
    assert len({one["diverged"] for one in found}) == 1
    assert "training diverged in epoch 2, step 1: the loss is not finite" in found[0]["diverged"]
    assert (folder / f"of {size}/sick/diverged.safetensors").exists()


@pytest.mark.parametrize("size", SIZES)
def test_ranks_that_were_told_different_things_are_refused(folder: Path, size: int) -> None:
    found = [torch.load(folder / f"rank{rank}of{size}.pt", weights_only=True)["different"] for rank in range(size)]
    assert set(found) == {
        "rank 0 and rank 1 differ in training.lr (training.lr is '0.001' on rank 0, and '0.002' on rank 1): give "
        "all ranks the same command and the same files"
    }
