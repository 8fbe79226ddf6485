"""Plans for volumes: when they are made, by themselves or if they are asked for, and their patches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fingerprints import fingerprint
from hypothesis import given
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.cli.train import TRAIN
from ringfence.documents import read_yaml
from ringfence.weak.experiments.planned import plan, planned
from ringfence.weak.experiments.train import train
from ringfence.weak.planning.choice import Device
from ringfence.weak.planning.fingerprint import Fingerprint
from ringfence.weak.planning.plan import Plan, make_plan
from ringfence.weak.planning.space import VOXELS
from ringfence.weak.tasks.settings import BoxDataSettings


def reason(made: Plan, name: str = "data.volumes") -> str:
    (said,) = (one.reason for one in made.choices if one.name == name)
    return said


def test_objects_as_deep_as_wide_are_found_in_volumes() -> None:
    def patch(found: Fingerprint, device: Device = "cpu") -> list[int] | None:
        chosen: list[int] | None = make_plan(found, device).changes["data.patch"]
        return chosen

    ball = fingerprint(12.0, (48, 48), 40, visible=0.9, deep=12.0)
    assert patch(ball) == [32, 48, 48]
    assert "objects are about as deep in slices as wide in pixels" in reason(make_plan(ball, "cpu"))
    assert patch(replace(ball, classes=(replace(ball.classes[0], depth=6.0),))) is not None  # half as deep
    assert patch(replace(ball, classes=(replace(ball.classes[0], depth=5.0),))) is None
    assert patch(replace(ball, classes=(replace(ball.classes[0], rows=(12.0, 12.0, 25.0)),))) is None
    assert patch(replace(ball, classes=(*ball.classes, replace(ball.classes[0], depth=1.0)))) is None  # one is flat
    hidden = replace(ball, classes=(replace(ball.classes[0], visible=0.0),))
    assert patch(hidden) is None
    assert make_plan(hidden, "cpu").changes["refine"] == 1  # that is why
    thin = replace(ball, classes=(replace(ball.classes[0], fill=0.5),))
    assert patch(thin) is None
    assert make_plan(thin, "cpu").changes["refinement.looks"] is True  # likewise
    assert patch(fingerprint(2.0, (48, 48), 1, visible=0.9)) is None  # images of one slice have no depth
    large = fingerprint(60.0, (112, 112), 100, visible=0.9, deep=60.0)  # in patches of 96 × 96 × 96
    assert patch(large, "cuda") == [96, 96, 96]
    assert patch(large, "cpu") is None
    assert patch(replace(ball, depths=(40, 50, 90))) == [64, 32, 32]
    assert patch(replace(ball, depths=(40, 60, 90))) is None  # which is less than half of the median volume


@given(
    side=st.floats(1.0, 300.0),
    deep=st.integers(1, 200),
    depth=st.integers(1, 200),
    size=st.integers(8, 512),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_a_patch_that_nobody_asked_for_holds_objects_whole(
    side: float, deep: int, depth: int, size: int, device: Device
) -> None:
    found = fingerprint(min(side, size), (size, size), max(deep, depth), visible=0.9, deep=deep)
    sides = make_plan(found, device).changes["data.patch"]
    if sides is not None:
        assert sides[0] * sides[1] * sides[2] <= VOXELS[device]
        assert all(
            one >= length for one, length in zip(sides, (deep, min(side, size), min(side, size)), strict=True)
        )
        assert deep >= 0.5 * min(side, size)


def test_patches_have_the_proportions_of_objects() -> None:
    def patch(side: float, deep: int, device: Device = "cpu") -> list[int]:
        found = replace(fingerprint(side, (128, 128), 128, tight=0, deep=deep), spacing=None)
        chosen: list[int] = make_plan(found, device).changes["data.patch"]
        return chosen

    assert patch(26.0, 26, "cuda") == [48, 48, 48]  # half as large again as the object, and whole halvings
    assert patch(80.0, 80, "cuda") == [128, 128, 128]
    assert patch(100.0, 100) == [48, 48, 48]  # 64 along one axis would be more than 131,072 voxels
    assert patch(80.0, 20) == [16, 80, 96]  # a flat object: few slices, and large ones
    assert patch(20.0, 80) == [128, 32, 32]
    assert patch(10.0, 10) == [32, 48, 48]  # small objects: more of what is around them, up to 74,898 voxels
    assert patch(300.0, 300, "cuda") == [128, 128, 128]  # no larger than the volume


def test_patches_hold_the_largest_class_along_each_axis() -> None:
    found = fingerprint(12.0, (128, 128), 128, tight=0, deep=40.0)
    (one,) = found.classes
    wide = replace(one, name="wide", rows=(20.0, 20.0, 40.0), depth=4.0)
    assert make_plan(replace(found, classes=(one, wide)), "cuda").changes["data.patch"] == [64, 64, 64]


@pytest.mark.parametrize("asked", [{"volumes": True}, {"patch": [16, 32, 48]}])
def test_volumes_that_are_asked_for_are_planned(tmp_path: Path, asked: dict[str, Any]) -> None:
    prepared = make_prepared(tmp_path / "set", shape=(20, 48, 48))
    made = plan(BoxDataSettings(prepared=str(prepared.path), **asked), "cpu")
    assert made.fingerprint.tight
    assert planned(made).data.patch == asked.get("patch", made.changes["data.patch"])
    assert made.changes["training.batch_size"] == 2
    assert made.changes["data.volumes"]
    assert "augment.turn" not in made.changes
    assert "as asked for" in reason(made)
    assert ("half as large again as objects" in reason(made, "data.patch")) == ("volumes" in asked)


def test_small_volumes_are_seen_whole() -> None:
    found = fingerprint(9.0, (48, 40), 16, visible=0.9, deep=9.0)
    assert make_plan(found, "cpu").changes["data.patch"] == [16, 48, 48]


def test_slices_that_are_asked_for_are_planned() -> None:
    ball = fingerprint(12.0, (48, 48), 40, visible=0.9, deep=12.0)
    made = make_plan(ball, "cpu", volumes=False)
    assert made.changes["data.patch"] is None
    assert made.changes["data.volumes"] is False
    assert made.changes["training.batch_size"] == 16
    assert reason(made) == "slices (1.0 times as far apart as rows): as asked for"


def test_slices_of_boxes_in_3d_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.volumes false asks for slices, and all boxes are in 3-D"):
        make_plan(fingerprint(tight=0), "cpu", volumes=False)


@pytest.mark.parametrize(("volumes", "patch"), [(True, None), (False, [16, 16, 16])])
def test_a_plan_for_the_one_is_not_trained_as_the_other(
    tmp_path: Path, volumes: bool, patch: list[int] | None
) -> None:
    """Neither from Python nor by a file: batches, steps and views are the other's."""
    prepared = make_prepared(tmp_path / "set", shape=(20, 48, 48))
    made = plan(BoxDataSettings(prepared=str(prepared.path), volumes=volumes), "cpu")
    with pytest.raises(ValueError, match=r"data\.volumes (true, and no data\.patch|false asks for slices)"):
        train(planned(made, {"data.patch": patch}), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_slices_are_flipped_in_volumes_that_a_plan_chooses(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", shape=(20, 48, 48))
    words = ["--data.prepared", str(prepared.path), "--augment.flip", "slices", "--training.device", "cpu"]
    settings, *_ = TRAIN.parsed([*words, "--data.volumes", "true"])
    assert settings.augment.flip == ["slices"]
    assert settings.data.patch is not None


def test_slices_and_a_patch_contradict_each_other() -> None:
    message = r"data\.volumes false asks for slices, and data\.patch \[16, 16, 16\] for volumes: change one of them"
    with pytest.raises(ValueError, match=message):
        BoxDataSettings(volumes=False, patch=[16, 16, 16])


@pytest.mark.parametrize(
    ("option", "said"), [("--volumes", "true"), ("--no-volumes", "false"), (None, None)], ids=str
)
def test_the_command_says_what_to_train_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str | None, said: str | None
) -> None:
    prepared = make_prepared(tmp_path / "set")
    main(["plan", str(prepared.path), "--device", "cpu", *([option] if option else [])])
    (after,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    assert after.endswith(f" --data.volumes {said}" if said else f" train {prepared.path}")
    main(
        ["plan", str(prepared.path), "--device", "cpu", "--out", str(tmp_path / "a"), *([option] if option else [])]
    )
    assert read_yaml(tmp_path / "a")["data"]["volumes"] == (option == "--volumes")


def test_shallow_volumes_are_filled_up() -> None:
    shallow = replace(fingerprint(20.0, (128, 128), 6, tight=0), spacing=(4.0, 1.0, 1.0))
    assert "up to 6 of them are filled up to 16" in reason(make_plan(shallow, "cpu"), "data.patch")


def test_volumes_that_are_asked_for_have_a_plan_for_volumes(tmp_path: Path) -> None:
    """Also where boxes are in slices: batches and steps of volumes, and what patches have no use for left out."""
    made, slices = (make_plan(fingerprint(), "cuda", patch=patch).changes for patch in ([16, 64, 48], None))
    boxes = make_plan(fingerprint(tight=0), "cuda").changes
    assert made["data.patch"] == [16, 64, 48]
    of_volumes = {name: value for name, value in boxes.items() if name != "data.patch"}
    assert {name: value for name, value in made.items() if name != "data.patch"} == of_volumes
    assert slices["training.batch_size"] == 16
    for tight in (0, 9):  # whatever the boxes are: it was not the plan that chose
        said = reason(make_plan(fingerprint(tight=tight), "cuda", patch=[16, 16, 16]))
        assert said == "volumes (1.0 times as far apart as rows), as asked for"
    assert slices["data.patch"] is None

    prepared = make_prepared(tmp_path / "set").path
    asked = plan(BoxDataSettings(prepared=str(prepared), patch=[16, 16, 16]), "cpu")
    assert asked.changes["data.patch"] == [16, 16, 16]
    assert planned(asked).training.batch_size == 2
