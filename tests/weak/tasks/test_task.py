"""What a task is to the training: residuals by name, tolerances, and which samples have their pictures kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ringfence as rf
from prepared_sets import make_prepared
from ringfence import weak
from ringfence.segmentation import Region
from ringfence.weak.constraints.registry import make_constraints
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.tasks.discs import disc_task
from ringfence.weak.tasks.settings import BoxDataSettings, DiscSettings
from ringfence.weak.tasks.task import measured, tolerances


def test_discs_are_bounded_as_the_paper_has_it() -> None:
    """0.9 and 1.1 times the disc's pixels; 20 pixels at 256 around its centre, and in proportion."""
    task = disc_task(DiscSettings(size=64, train=6, validation=4), seed=3)
    assert (len(task.train["image"]), len(task.validation["image"])) == (6, 4)
    assert tuple(task.constraints) == ("size", "centroid")
    for row, mask in enumerate(task.train["mask"][:, 0]):
        places = mask.nonzero().double()
        assert task.train["size_low"][row].item() == pytest.approx(0.9 * len(places))
        assert task.train["size_high"][row].item() == pytest.approx(1.1 * len(places))
        for axis in (0, 1):
            centre = places[:, axis].mean().item()
            assert task.train["centroid_low"][row, 0, axis].item() == pytest.approx(centre - 5.0, abs=1e-4)
            assert task.train["centroid_high"][row, 0, axis].item() == pytest.approx(centre + 5.0, abs=1e-4)
    assert "box" not in task.train
    assert (
        disc_task(DiscSettings(size=64, train=1, validation=1, centroid_slack=2.0), 0).constraints["centroid"].slack
        == 2.0
    )


@pytest.mark.parametrize("unit", ["pixels", "relative"])
def test_every_disc_has_every_bound_and_its_mask_satisfies_it(unit: str) -> None:
    """So that nobody need look for those that are missing: that there are none is promised."""
    task = disc_task(DiscSettings(size=48, train=12, validation=4), seed=0)
    mask = task.train["mask"]
    region = Region(200.0 * torch.cat([~mask, mask], dim=1).float())
    for residual in task.measure(unit)(region, task.train).values():
        assert not residual.ragged
        assert bool(residual.f.isfinite().all())
        assert bool(residual.satisfied().all())
    wrong = Region(torch.zeros(12, 2, 48, 48))
    assert bool((task.measure(unit)(wrong, task.train)["size"].f[..., 1] > 0).all())


def test_in_relative_units_the_room_of_a_disc_is_a_tenth_to_either_side() -> None:
    task = disc_task(DiscSettings(size=48, train=3, validation=1), seed=0)
    mask = task.train["mask"]
    residuals = task.measure("relative")(Region(200.0 * torch.cat([~mask, mask], dim=1).float()), task.train)
    for name in ("size", "centroid"):
        torch.testing.assert_close(residuals[name].f, torch.full_like(residuals[name].f, -0.1), atol=1e-4, rtol=0.0)


def test_tolerances_are_those_of_the_constraints_that_have_one() -> None:
    made = make_constraints(
        {
            "outside": {},
            "strips": {},
            "apart": {"class_path": "separation", "init_args": {"first": "a", "second": "b"}},
        }
    )
    assert tolerances(made) == {"outside": 1.0, "apart": 1.0}


def test_pictures_are_of_the_fullest_sample_of_each_of_the_first_cases(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path, cases=4)
    task = box_task(BoxDataSettings(prepared=str(prepared.path)), {"outside": {}})
    (number,) = task.pictured(3)
    area = (task.validation["box"][..., 1] - task.validation["box"][..., 0]).prod(dim=-1).flatten(1).sum(dim=1)
    assert int(area[number]) == int(area.max()) > 0
    discs = disc_task(DiscSettings(size=32, train=2, validation=5), seed=0)
    assert discs.pictured(3) == [0, 1, 2]
    assert discs.pictured(9) == [0, 1, 2, 3, 4]
    several = dict(discs.validation) | {"case": torch.tensor([-2, -2, -1, -1, -2])}
    bare = type(discs)(discs.train, several, ("a",), ("b",), (32, 32), {}, discs.preprocessing)
    size = discs.validation["mask"].flatten(1).sum(dim=1)
    first = 2 if size[2] >= size[3] else 3
    second = max((0, 1, 4), key=lambda one: (int(size[one]), -one))
    assert bare.pictured(2) == [first, second]


def test_a_constraint_of_ones_own_has_a_row_for_each_image() -> None:
    class Mean(weak.Constraint):
        def residual(self, region: Region, targets: weak.Targets, unit: weak.Unit) -> rf.Residual:
            return rf.at_most(region.size.mean(dim=0), 3.0)

    with pytest.raises(
        ValueError, match=r"constraints.mine: a residual has a row for each image, here 4; its shape is"
    ):
        measured({"mine": Mean()})(Region(torch.zeros(4, 3, 5, 6)), {})
