"""From a fingerprint to settings: as a file, on the command line, and at every size of object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fingerprints import fingerprint
from hypothesis import given
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.documents import parse_yaml, read_yaml
from ringfence.weak.experiments.planned import as_yaml, for_method, plan, planned
from ringfence.weak.experiments.presets import from_file
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.planning.choice import Device
from ringfence.weak.planning.computing import HALVINGS, SMALLEST, halvings_of, seen_by
from ringfence.weak.planning.fingerprint import Fingerprint
from ringfence.weak.planning.plan import make_plan
from ringfence.weak.planning.space import VOXELS


def test_the_file_of_a_plan_gives_its_settings(tmp_path: Path) -> None:
    made = plan(make_prepared(tmp_path / "set", classes=2).path, "cpu")
    file = tmp_path / "plan.yaml"
    file.write_text(as_yaml(made), encoding="utf-8")
    assert from_file(TrainSettings, file) == planned(made)
    assert all(f"# {one.reason}" in file.read_text(encoding="utf-8") for one in made.choices)
    assert planned(made, {"seed": 3}).seed == 3


def test_a_cpu_sees_small_slices_more_often() -> None:
    def steps(side: int, device: Device = "cpu", count: int = 1) -> int:
        found = fingerprint(size=(side, side))
        more = replace(found, classes=tuple(replace(found.classes[0], name=str(one)) for one in range(count)))
        return int(make_plan(more, device).changes["training.steps"])

    assert [steps(side) for side in (512, 256, 128, 64, 16)] == [800, 800, 1600, 2800, 2800]
    assert [steps(256, count=count) for count in (2, 4, 9)] == [800, 1600, 3600]
    assert steps(512, "cuda") == steps(16, "cuda") == 5600
    assert make_plan(fingerprint(tight=0), "cuda").changes["training.steps"] == 2800  # of volumes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_second_network_learns_from_the_first_where_objects_do_not_show(device: Device) -> None:
    def refined(found: Fingerprint) -> int:
        return planned(make_plan(found, device)).refine

    assert [refined(fingerprint(visible=share)) for share in (0.0, 0.24, 0.25, 1.0)] == [1, 1, 0, 0]
    assert refined(fingerprint(tight=0)) == 0  # volumes
    assert refined(replace(fingerprint(), judged=0)) == 0  # who should tell whether it is better?
    shown = fingerprint(visible=0.98).classes[0]
    assert refined(replace(fingerprint(), classes=(replace(shown, visible=0.0, looked=9),))) == 0  # who knows?
    cyst = replace(shown, name="cyst", visible=0.1)
    made = make_plan(replace(fingerprint(), classes=(shown, cyst)), device)
    (reason,) = [one.reason for one in made.choices if one.name == "refine"]
    assert reason.startswith("cyst can be told from its surroundings in 10% of its boxes: a second network learns")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_plan_for_masks_is_not_refined(device: Device) -> None:
    made = make_plan(fingerprint(), device)
    for method in ("full_supervision", "ringfence.weak.training.methods.FullSupervision"):
        assert planned(made, {"method": method}).refine == 0
        said = str(for_method(made, method))
        assert "refine" not in said
        assert "augment.turn" in said
    assert planned(made, {"method": "full_supervision", "augment.turn": 10.0}).augment.turn == 10.0
    assert planned(made, {"method": "penalty"}).refine == 1
    assert planned(made, {"refine": 0}).refine == 0
    assert "refine" in str(made)


def test_a_network_sees_objects_and_what_is_around_them() -> None:
    def network(side: float, size: tuple[int, int] = (512, 512), **others: int) -> tuple[str, int]:
        changes = make_plan(fingerprint(side, size, **others), "cuda").changes
        return changes["network.class_path"].rpartition(".")[2], len(changes["network.init_args"]["features"])

    assert [network(side) for side in (8, 93, 94)] == [("BasicUNet", 6), ("BasicUNet", 6), ("DeepUNet", 7)]
    assert [network(side) for side in (189, 190)] == [("DeepUNet", 7), ("DeepUNet", 8)]
    assert network(190, (128, 512)) == ("DeepUNet", 7)  # four pixels are left along the shorter side
    assert network(190, (127, 512)) == ("BasicUNet", 6)
    assert network(200, tight=0) == ("BasicUNet", 6)  # patches


def test_a_cpu_is_told_what_it_learns_little_of() -> None:
    def told(device: Device, side: int, patch: list[int] | None = None, tight: int = 9) -> list[str]:
        made = make_plan(fingerprint(60.0, (side, side), tight=tight), device, patch=patch)
        return [one for one in made.remarks if one.startswith("a CPU")]

    (large,) = told("cpu", 256, [16, 96, 96])
    assert "train on slices (data.volumes false), prepare them smaller (--size), or train on a GPU" in large
    (in_space,) = told("cpu", 256, tight=0)
    assert "slices" not in in_space
    assert told("cpu", 128, [16, 96, 96]) == told("cuda", 256, [16, 96, 96]) == told("cpu", 128) == []
    (halved,) = told("cpu", 256)
    assert "--size 128 128" in halved


@given(height=st.integers(1, 4096), width=st.integers(1, 4096), longest=st.floats(1.0, 4096.0))
def test_halvings_are_no_more_than_it_takes(height: int, width: int, longest: float) -> None:
    number, shorter = halvings_of((height, width), longest), min(height, width)
    assert number == 4 or (shorter >= SMALLEST * 2**number and seen_by(number - 1) < 1.5 * longest)
    assert seen_by(number) >= 1.5 * longest or shorter < SMALLEST * 2 ** (number + 1)


@pytest.mark.parametrize(("slices", "epochs"), [(60, 400), (320, 280), (20_000, 10)])
def test_a_plan_says_how_many_epochs_there_will_be(slices: int, epochs: int) -> None:
    made = make_plan(replace(fingerprint(), slices=slices), "cuda")
    (said,) = (one.reason for one in made.choices if one.name == "training.steps")
    assert said == f"about {epochs} epochs of {slices} samples"
    assert planned(made).lasting(slices).training.epochs == epochs


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ({"device": "gpu"}, "training.device is one of auto, cpu, cuda; got 'gpu'"),
        ({"precision": "fp16"}, "training.precision is one of auto, 32, bf16, 64; got 'fp16'"),
    ],
)
def test_a_plan_for_no_device_that_there_is_is_refused(word: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        plan(tmp_path, **word)


def test_a_cpu_that_multiplies_bfloat16_takes_more_steps() -> None:
    plain, faster = (make_plan(fingerprint(), "cpu", bf16=one).changes for one in (False, True))
    assert "training.precision" not in plain
    assert faster["training.precision"] == "bf16"
    assert faster["training.steps"] == round(1.6 * plain["training.steps"], -2)
    assert make_plan(fingerprint(), "cuda", bf16=True) == make_plan(fingerprint(), "cuda")
    assert make_plan(fingerprint(tight=0), "cpu", bf16=True) == make_plan(fingerprint(tight=0), "cpu")  # volumes


@pytest.mark.parametrize(
    ("side", "size", "device", "said"),
    [(40.0, 256, "cpu", True), (20.0, 256, "cpu", False), (40.0, 128, "cpu", False), (40.0, 256, "cuda", False)],
)
def test_slices_that_are_large_for_a_cpu_are_remarked_on(
    side: float, size: int, device: Device, said: bool
) -> None:
    remarks = make_plan(fingerprint(side, (size, size)), device).remarks
    assert ["--size 128 128" in one for one in remarks] == [True] * said


@given(
    side=st.floats(2, 200),
    height=st.integers(16, 512),
    depth=st.integers(1, 300),
    device=st.sampled_from(sorted(VOXELS)),
)
def test_plans_are_settings_whatever_the_size(side: float, height: int, depth: int, device: Device) -> None:
    found = fingerprint(min(side, height), (height, height), depth)
    changes = make_plan(found, device).changes
    assert changes["constraints.strips.width"] == max(1, round(min(side, height) / 12))
    assert (changes["log_barrier.t"], changes["log_barrier.final_t"]) == (0.3162, 3.0)  # odds of 0.1 and 9
    assert changes["data.patch"] is None
    assert changes["log_barrier.most_odds"] == {"absent": 1.0}
    assert changes["constraints.edges.strength"] == 5.0
    assert "constraints.edges.fading" not in changes
    assert changes["constraints.outside.absent"] is False  # or it would count twice
    assert changes["training.calibrate"] is True


@pytest.mark.parametrize(("shown", "strong"), [((0.25, 0.9), True), ((0.24, 0.9), False)])
def test_where_all_classes_show_edges_are_strong_early(shown: tuple[float, float], strong: bool) -> None:
    found = fingerprint()
    classes = tuple(replace(found.classes[0], name=f"c{share}", visible=share) for share in shown)
    changes = make_plan(replace(found, classes=classes), "cpu").changes
    assert changes["constraints.edges.strength"] == 5.0
    assert (changes.get("constraints.edges.fading"), changes.get("log_barrier.early")) == (
        (False, {"edges": 0.7}) if strong else (None, None)
    )
    volumes = make_plan(replace(found, classes=tuple(replace(one, tight=0) for one in classes)), "cpu").changes
    assert "log_barrier.early" not in volumes
    assert not {"augment.turn", "training.neighbours"} & set(volumes)  # they are for slices


@pytest.mark.parametrize(
    ("visible", "fill", "tight", "looks", "said"),
    [
        (0.3, 0.5, 9, True, False),
        (0.3, 0.5, 0, False, True),  # volumes
        (0.1, 0.5, 9, False, False),
        (0.3, 0.68, 9, False, False),
        (0.3, 0.67, 9, True, False),
    ],
)
def test_objects_that_are_seen_not_to_fill_their_boxes_are_learnt_from_brightness(
    visible: float, fill: float, tight: int, looks: bool, said: bool
) -> None:
    """And where they cannot be, they are remarked on."""
    made = make_plan(fingerprint(visible=visible, fill=fill, tight=tight), "cpu")
    assert planned(made).refinement.looks is looks
    assert ["object seems to fill no more than 50% of its boxes." in one for one in made.remarks] == [True] * said
    assert not planned(made, {"method": "full_supervision"}).refinement.looks


def test_too_few_boxes_do_not_say_that_objects_are_thin() -> None:
    few = replace(fingerprint(visible=1.0, fill=0.5).classes[0], looked=9)
    assert not planned(make_plan(replace(fingerprint(), classes=(few,)), "cpu")).refinement.looks


@pytest.mark.parametrize(("side", "looks"), [(8.0, True), (7.5, False)])
def test_tiny_classes_have_no_labels_from_brightness(side: float, looks: bool) -> None:
    """Nor have the others then, or the tiny one would be taken for them."""
    found = fingerprint(visible=1.0, fill=0.5)
    (one,) = found.classes
    tiny = replace(one, name="tiny", rows=(5.0, side, 10.0), fill=0.9)
    made = make_plan(replace(found, classes=(one, tiny)), "cpu")
    assert planned(made).refinement.looks is looks
    assert any(remark.startswith("object seems to fill no more than 50%") for remark in made.remarks) is not looks


def test_reasons_name_the_thinnest_class_and_the_one_that_is_most_inside() -> None:
    one = fingerprint(visible=0.9, fill=0.65).classes[0]
    classes = (one, replace(one, name="thinnest", fill=0.4), replace(one, name="full", fill=0.9))
    within = {("object", "full"): 0.8, ("thinnest", "full"): 0.95}
    made = make_plan(replace(fingerprint(), classes=classes, within=within), "cpu")
    reasons = {choice.name: choice.reason for choice in made.choices}
    assert reasons["refinement.looks"].startswith("thinnest is seen to fill 40% of its boxes")
    assert reasons["constraints.strips.steep"].startswith("thinnest lies within the boxes of full")


def test_where_one_class_does_not_show_brightness_teaches_none() -> None:
    thin = fingerprint(visible=0.5, fill=0.5).classes[0]
    tiny = replace(thin, name="tiny", visible=0.0, looked=0)  # nothing is known of it
    assert not planned(make_plan(replace(fingerprint(), classes=(thin, tiny)), "cpu")).refinement.looks
    faint = replace(thin, name="faint", visible=0.1)
    made = make_plan(replace(fingerprint(), classes=(thin, faint)), "cpu")
    assert not planned(made).refinement.looks
    assert planned(made).refine == 1
    (remark,) = made.remarks
    assert remark.startswith("object seems to fill no more than 50%")


@pytest.mark.parametrize(("share", "steep"), [(0.8, True), (0.79, None)])
def test_a_class_inside_of_another_is_pulled_at_wherever_the_other_one_is(share: float, steep: bool | None) -> None:
    found = replace(fingerprint(), within={("core", "shell"): share, ("shell", "core"): 0.0})
    assert make_plan(found, "cpu").changes.get("constraints.strips.steep") is steep


@given(side=st.floats(2, 200), height=st.integers(16, 512), depth=st.integers(1, 300))
def test_boxes_in_space_are_trained_on_in_patches(side: float, height: int, depth: int) -> None:
    changes = make_plan(fingerprint(min(side, height), (height, height), depth, tight=0), "cpu").changes
    assert "constraints.absent" not in changes
    assert "log_barrier.most_odds" not in changes
    assert "training.calibrate" not in changes
    patch = changes["data.patch"]
    assert all(length % HALVINGS == 0 for length in patch)
    assert patch[0] * patch[1] * patch[2] <= VOXELS["cpu"]
    if side < 40 and depth <= 32:
        assert min(patch[1:]) >= min(side, height)


@pytest.mark.parametrize(("tight", "spatial"), [(0, True), (2, True), (3, False), (9, False)])
def test_a_class_with_hardly_a_box_in_slices_is_looked_for_in_volumes(tight: int, spatial: bool) -> None:
    one = fingerprint().classes[0]
    found = replace(fingerprint(), classes=(one, replace(one, name="cyst", tight=tight)))
    made = make_plan(found, "cpu")
    assert made.changes["data.volumes"] is spatial
    (why,) = (one.reason for one in made.choices if one.name == "data.volumes")
    assert ("boxes of cyst are in 3-D, and say little about a single slice" in why) is spatial
    assert make_plan(found, "cpu", volumes=False).changes["data.volumes"] is False  # some are in slices: as asked


def test_each_class_has_strips_of_its_own_width(tmp_path: Path) -> None:
    found = fingerprint(36.0)
    small = replace(found.classes[0], name="cyst: small", rows=(9.0, 12.0, 20.0))
    several = replace(found, classes=(found.classes[0], small))
    made = make_plan(several, "cpu")
    assert made.changes["constraints.strips.width"] == {"object": 3, "cyst: small": 1}
    file = tmp_path / "plan.yaml"
    file.write_text(as_yaml(made), encoding="utf-8")
    assert from_file(TrainSettings, file) == planned(made)
    assert planned(made).constraints["strips"] == {"width": {"object": 3, "cyst: small": 1}}
    alike = replace(found, classes=(found.classes[0], replace(small, rows=(30.0, 35.0, 40.0))))
    assert make_plan(alike, "cpu").changes["constraints.strips.width"] == 3


@pytest.mark.parametrize(
    ("depth", "said"), [(1, "images of one slice: "), (12, "slices (1.0 times as far apart as rows): ")]
)
def test_single_images_are_not_far_apart(depth: int, said: str) -> None:
    (reason,) = [
        one.reason for one in make_plan(fingerprint(depth=depth), "cpu").choices if one.name == "data.volumes"
    ]
    assert reason == f"{said}each has boxes of its own, and they say most there"


def test_what_boxes_cannot_tell_is_said() -> None:
    odd = replace(
        fingerprint(2.0),
        within={("core", "shell"): 0.9, ("shell", "core"): 0.1},
        uneven=2.0,
        validated=0,
    )
    small, nested, uneven, unjudged = make_plan(odd, "cpu").remarks
    assert "not what shape it has" in small
    assert "core lies within the boxes of shell in 90% of its boxes" in nested
    assert "2.0 times as large" in uneven
    assert "no case for validation has a mask" in unjudged
    assert make_plan(fingerprint(), "cpu").remarks == ()


def test_the_command_prints_writes_and_does_not_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared, file = make_prepared(tmp_path / "set").path, tmp_path / "plan.yaml"
    assert main(["plan", str(prepared), "--device", "cpu", "--out", str(file)]) == 0
    said = capsys.readouterr().out
    assert "constraints.strips.width: 1" in said
    assert f"next: ringfence train {file}" in said
    assert main(["plan", str(prepared), "--out", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "nothing")]) == 2
    capsys.readouterr()
    assert main(["plan", str(prepared), "--device", "cpu", "--patch", "16", "16", "32"]) == 0
    said = capsys.readouterr().out
    assert "data.patch: [16, 16, 32]" in said
    assert said.endswith(f"next: ringfence train {prepared} --data.patch 16 16 32\n")
    assert main(["plan", str(prepared), "--patch", "999", "16", "16"]) == 2  # as training would refuse it
    assert "data.patch is slices, rows and columns of a patch, at most" in capsys.readouterr().err


def test_training_goes_by_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared, out = make_prepared(tmp_path / "set").path, tmp_path / "run"
    words = ["--data.prepared", str(prepared), "--training.device", "cpu", "--training.epochs", "1"]
    assert (
        main(["train", "plan", *words, "--out", str(out), "--network.init_args.features", "[2, 2, 2, 2, 2, 2]"])
        == 0
    )
    assert "log_barrier.unit: odds" in capsys.readouterr().err
    stored = read_yaml(out / "config.yaml")
    assert stored["log_barrier"]["unit"] == "odds"
    assert stored["log_barrier"]["final_t"] == 3.0
    assert stored["training"]["epochs"] == 1
    assert stored["constraints"]["strips"] == {"width": 1}


def test_options_are_known_to_the_plan_and_win_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = make_prepared(tmp_path / "set").path
    words = ["--data.prepared", str(prepared), "--training.device", "cpu", "--constraints.strips.width", "3"]
    assert main(["train", "plan", *words, "--data.smallest_part", "100000"]) == 2
    assert "no training image has a box" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "plan", *words, "--print_config"])
    said = parse_yaml(capsys.readouterr().out, "the printed config")
    assert said["constraints"]["strips"] == {"width": 3}
    assert said["log_barrier"]["unit"] == "odds"


@pytest.mark.parametrize(("alike", "share"), [((0.9,), 0.25), ((0.9, 0.3), None), ((0.0,), None)])
def test_slices_that_are_alike_in_every_class_are_found_together(
    alike: tuple[float, ...], share: float | None
) -> None:
    found = fingerprint()
    classes = tuple(replace(found.classes[0], name=f"c{one}", alike=one) for one in alike)
    assert make_plan(replace(found, classes=classes), "cuda").changes.get("training.neighbours") == share


@pytest.mark.parametrize(
    ("size", "turn"), [((64, 64), 30.0), ((64, 128), 30.0), ((200, 64), 18.0), ((64, 256), 14.0)]
)
def test_long_images_are_turned_less(size: tuple[int, int], turn: float) -> None:
    """So that the ends of their middle line stay in sight."""
    assert make_plan(replace(fingerprint(), size=size), "cuda").changes["augment.turn"] == turn


@pytest.mark.parametrize(
    ("loose", "visible", "tighten"),
    [
        ([0.05], [0.5], 0.05),
        ([0.031], [0.5], 0.031),
        ([0.029], [0.5], None),  # as tight ones may look
        ([0.2], [0.5], None),  # not the boxes' fault: something bright in the middle of the object, say
        ([None], [0.5], None),
        ([0.05], [0.1], None),  # too few show
        ([0.02, 0.06, 0.07], [0.5, 0.5, 0.5], 0.06),  # one hand draws all of them
        ([0.02, 0.06, 0.07], [0.5, 0.5, 0.1], 0.04),
    ],
)
def test_boxes_that_are_seen_to_be_too_wide_are_made_smaller(
    loose: list[float | None], visible: list[float], tighten: float | None
) -> None:
    found = fingerprint()
    classes = tuple(
        replace(found.classes[0], name=str(number), loose=one, visible=share)
        for number, (one, share) in enumerate(zip(loose, visible, strict=True))
    )
    found = replace(found, classes=classes)
    assert make_plan(found, "cpu", drawn=True).changes.get("data.tighten") == pytest.approx(tighten)
    assert "data.tighten" not in make_plan(found, "cpu").changes  # around masks they are as tight as can be


@pytest.mark.parametrize(
    ("loose", "visible", "tight", "drawn", "said"),
    [(None, 0.0, 9, True, 1), (0.0, 0.5, 9, True, 0), (None, 0.0, 9, False, 0), (None, 0.0, 0, True, 0)],
)
def test_where_nobody_sees_how_boxes_are_drawn_a_plan_says_so(
    loose: float | None, visible: float, tight: int, drawn: bool, said: int
) -> None:
    found = fingerprint(visible=visible, tight=tight)
    found = replace(found, classes=(replace(found.classes[0], loose=loose),))
    remarks = make_plan(found, "cpu", drawn=drawn).remarks
    assert sum("--data.tighten 0.05 takes 5% of their sides off" in one for one in remarks) == said


def test_less_than_half_a_pixel_is_not_worth_a_word() -> None:
    for side, said in ((9.0, False), (11.0, True)):
        found = fingerprint(side, visible=0.5)
        found = replace(found, classes=(replace(found.classes[0], loose=0.05),))
        assert ("data.tighten" in make_plan(found, "cpu", drawn=True).changes) == said


@pytest.mark.parametrize(("side", "margin"), [(8.0, 0), (20.0, 1), (64.0, 3)])
def test_boxes_from_a_file_may_be_a_little_too_wide(side: float, margin: int) -> None:
    assert make_plan(fingerprint(side), "cpu", drawn=True).changes["data.margin"] == margin
    assert "data.margin" not in make_plan(fingerprint(side), "cpu").changes
