"""Measures: Dice against its formula and MONAI, by patients, and the same on two ranks as on one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dice_ranks import batches, run
from monai.metrics.meandice import compute_dice
from torch import Tensor

import children
from ringfence.weak.training.measures import MEASURES, Dice, decimals, dice, overlap, percent


def test_dice_against_its_formula() -> None:
    logits = torch.randn(5, 3, 6, 7)
    labels = torch.randint(0, 3, (5, 6, 7))
    masks = torch.stack([labels == 1, labels == 2], dim=1)
    scores = dice(overlap(logits, masks))
    found = logits.argmax(dim=1)
    for row in range(5):
        for place, name in enumerate((1, 2)):
            p, y = (found[row] == name).numpy(), (labels[row] == name).numpy()
            assert scores[row, place].item() == pytest.approx(2 * (p & y).sum() / (p.sum() + y.sum()))


def test_dice_of_empty_masks() -> None:
    empty, full = torch.zeros(1, 1, 4, 4, dtype=torch.bool), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    nothing = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    assert dice(overlap(nothing, empty)).item() == 1.0
    assert dice(overlap(nothing, full)).item() == 0.0
    assert dice(overlap(nothing.flip(1), empty)).item() == 0.0


def test_dice_of_patients_is_that_of_their_whole_volumes() -> None:
    """Against MONAI's, on the stacked slices."""
    logits, masks = torch.randn(7, 3, 6, 5), torch.rand(7, 2, 6, 5) < 0.4
    case = torch.tensor([0, 0, 0, -2, 2, 2, 2])  # nobody judges the case of the fourth row
    judged = torch.rand(7, 6, 5) < 0.9
    scores = dice(overlap(logits, masks, judged), case)
    labels = logits.argmax(dim=1)
    assert len(scores) == 2
    for number, rows in ((0, slice(0, 3)), (1, slice(4, 7))):
        for place in (0, 1):
            found = ((labels[rows] == 1 + place) & judged[rows]).float()[None, None]
            true = (masks[rows, place] & judged[rows]).float()[None, None]
            assert scores[number, place].item() == pytest.approx(compute_dice(found, true).item(), rel=1e-6)


@pytest.mark.parametrize("cases", [True, False])
def test_batch_after_batch_is_all_at_once(cases: bool) -> None:
    metric = Dice()
    parts = batches(cases)
    for logits, batch in parts:
        metric.update(logits, batch)
    logits = torch.cat([one for one, _ in parts])
    together = {name: torch.cat([batch[name] for _, batch in parts]) for name in parts[0][1]}
    scores = dice(overlap(logits, together["mask"]), together.get("case"))
    found = metric.compute()
    assert found.keys() == {"dice", "dice/1", "dice/2"}
    assert float(found["dice"]) == pytest.approx(float(scores.mean()))
    assert float(found["dice/2"]) == pytest.approx(float(scores[:, 1].mean()))


def test_one_class_has_no_columns_of_its_own() -> None:
    metric = Dice()
    metric.update(torch.randn(2, 2, 4, 4), {"mask": torch.rand(2, 1, 4, 4) < 0.5})
    assert metric.compute().keys() == {"dice"}


def test_without_a_case_to_judge_there_is_no_number() -> None:
    metric = Dice()
    metric.update(torch.randn(2, 2, 4, 4), {"mask": torch.rand(2, 1, 4, 4) < 0.5, "case": torch.tensor([-1, -2])})
    assert bool(metric.compute()["dice"].isnan())


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """Of one process alone, then of ranks 0 and 1."""
    folder = tmp_path_factory.mktemp("ranks")
    run(0, 1, str(folder))
    children.ranks(run, 2, str(folder))
    names = ("rank0of1.pt", "rank0of2.pt", "rank1of2.pt")
    return [torch.load(Path(folder) / name, weights_only=True) for name in names]


@pytest.mark.parametrize("what", ["by patient", "by image", "uneven"])
def test_two_ranks_say_what_one_says(ranks: list[dict[str, dict[str, Tensor]]], what: str) -> None:
    """A patient's slices lie on both ranks, in another order than on one: his Dice is that of his whole volume."""
    alone, *both = (one[what] for one in ranks)
    for one in both:
        assert one.keys() == alone.keys()
        for name, value in one.items():
            torch.testing.assert_close(value, alone[name])


def test_the_table_knows_how_to_write_its_numbers() -> None:
    assert list(MEASURES)[:3] == ["dice", "satisfaction", "stability"]
    assert (decimals(0.8634), percent(0.8634)) == ("0.863", "86.3 %")
    assert (decimals(float("nan")), percent(float("nan"))) == ("–", "–")
