"""Training from boxes, end to end at tiny size: every method, slices and volumes, without a labelled pixel."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from rich.console import Console

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.cli.settings import parse, settings_from, settings_parser
from ringfence.weak.experiments.compare import compare_boxes, train_on_boxes
from ringfence.weak.inference.model_file import load_model, save_model
from ringfence.weak.tasks.boxes import box_task
from ringfence.weak.training.box_settings import (
    AugmentSettings,
    BoxCompareSettings,
    BoxDataSettings,
    BoxSettings,
    TrainSettings,
)
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.history import History
from ringfence.weak.training.run_folder import OneRun
from ringfence.weak.training.settings import METHODS, FullSupervisionSettings, NetworkSettings, TrainingSettings

QUIET = Console(quiet=True)
NETWORK = NetworkSettings("torch.nn.Conv2d", {"kernel_size": 5, "padding": 2})
TRAINING = TrainingSettings(epochs=2, batch_size=4, lr=1e-2, device="cpu", prior=None)


def settings(folder: Path, kind: type[BoxSettings], **changes: object) -> BoxSettings:
    return replace(
        kind(), data=BoxDataSettings(prepared=str(folder)), network=NETWORK, training=TRAINING, **changes
    )


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def test_every_method_is_compared_by_patients(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", classes=2, channels=2, cases=5)
    asked = settings(tmp_path / "set", BoxCompareSettings, methods=list(METHODS), seeds=[0])
    folder = compare_boxes(asked, tmp_path / "run", console=QUIET).path
    assert json.loads((folder / "environment.json").read_text())["task"] == "ellipsoids"
    for method in METHODS:
        epochs = rows(folder / "seed-0" / method / "metrics.csv")
        assert len(epochs) == 2
        for name in (
            "dice",
            "dice/1",
            "dice/2",
            "satisfaction/strips",
            "satisfaction/outside",
            "satisfaction/size",
        ):
            assert 0.0 <= float(epochs[-1][name]) <= 1.0
        network, card = load_model(folder / "seed-0" / method / "model.pt")
        assert (card.classes, len(card.channels)) == (("class 1", "class 2"), 2)
        assert network(torch.zeros(1, 2, 24, 20)).shape == (1, 3, 24, 20)


def test_training_and_model_know_the_mirrors_and_masks_their_dice_loss(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", BoxSettings, augment=AugmentSettings(flip=["up-down", "left-right"]))
    task = box_task(asked)
    assert make_module(asked, task, "penalty", 0).mirrors == (-2, -1)
    model = train_on_boxes(
        replace(settings(tmp_path / "set", TrainSettings), augment=asked.augment), tmp_path / "run", console=QUIET
    )
    assert load_model(model)[1].mirrors == ("up-down", "left-right")
    once = replace(asked, augment=replace(asked.augment, average=False))
    assert make_module(once, box_task(once), "penalty", 0).mirrors == ()
    batch = {name: tensor[:3] for name, tensor in task.train.items()}
    losses = []
    for dice in (0.0, 1.0):
        module = make_module(
            replace(asked, full_supervision=FullSupervisionSettings(dice=dice)), task, "full_supervision", 0
        )
        module._varied = None
        losses.append(module.training_step(batch, 0).item())
    assert 0.1 < losses[1] - losses[0] <= 1.0


def test_limits_are_counted_alike_whatever_a_method_measures_them_in(tmp_path: Path) -> None:
    """The same network: as many limits hold, and by the same pixels the others do not."""
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", BoxSettings)
    task = box_task(asked)
    seen = []
    for unit in ("pixels", "relative"):
        module = make_module(replace(asked, penalty=replace(asked.penalty, unit=unit)), task, "penalty", 0)
        with torch.no_grad():
            module.network.temperature.fill_(0.05)
            module.validation_step(task.validation | {"index": torch.arange(len(task.validation["image"]))}, 0)
        seen.append(module.monitor.compute())
    assert seen[0].keys() == seen[1].keys()
    for name, value in seen[0].items():
        assert float(seen[1][name]) == pytest.approx(float(value), rel=1e-5, nan_ok=True), name
    assert float(seen[0]["worst/outside"]) > 1.0


def test_volumes_train_in_patches(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", shape=(9, 24, 20))
    asked = settings(tmp_path / "set", TrainSettings)
    asked = replace(
        asked,
        data=replace(asked.data, patch=[6, 20, 16]),
        network=NetworkSettings("torch.nn.Conv3d", {"kernel_size": 3, "padding": 1}),
    )
    model = train_on_boxes(asked, tmp_path / "run", console=QUIET)
    network, card = load_model(model)
    assert card.patch == (6, 20, 16)
    assert card.size == (24, 20)  # of the slices, not of the patch: predict resizes to it
    assert network(torch.zeros(1, 1, 6, 20, 16)).shape == (1, 2, 6, 20, 16)
    assert float(rows(tmp_path / "run" / "metrics.csv")[-1]["satisfaction"]) <= 1.0


def test_it_learns_what_a_threshold_could_do(tmp_path: Path) -> None:
    """Bright ellipsoids on a dark ground, from boxes alone: a convolution finds most of them."""
    make_prepared(tmp_path / "set", cases=6, shape=(8, 32, 32))
    asked = settings(tmp_path / "set", TrainSettings)
    asked = replace(asked, training=replace(TRAINING, epochs=25, lr=0.1))
    train_on_boxes(asked, tmp_path / "run", console=QUIET)
    assert max(float(row["dice"]) for row in rows(tmp_path / "run" / "metrics.csv")) > 0.8


@pytest.mark.parametrize("method", ["log_barrier", "augmented_lagrangian"])
def test_no_labelled_pixel_is_used(tmp_path: Path, method: str) -> None:
    """Training masks that are whole boxes, with the same boxes, give the very same network."""
    prepared = make_prepared(tmp_path / "set")
    weights = []
    for name in ("set", "boxes"):
        if name == "boxes":
            make_prepared(tmp_path / "boxes")
            for case in prepared.of("train"):
                image, mask = prepared.load(case)
                for labels in mask:
                    if labels.any():
                        down, right = np.nonzero(labels)
                        labels[down.min() : down.max() + 1, right.min() : right.max() + 1] = 1
                np.savez(tmp_path / "boxes" / case.file, image=image, mask=mask)
        asked = replace(settings(tmp_path / name, TrainSettings), method=method)
        weights.append(load_model(train_on_boxes(asked, tmp_path / f"run-{name}", console=QUIET))[0].state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_resumed_training_ends_as_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_prepared(tmp_path / "set")
    asked = replace(settings(tmp_path / "set", TrainSettings), training=replace(TRAINING, epochs=3))
    whole = load_model(train_on_boxes(asked, tmp_path / "whole", console=QUIET))[0].state_dict()

    original = History.on_train_epoch_start

    def stop(self: History, trainer: object, module: object) -> None:
        if module.current_epoch == 2:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        original(self, trainer, module)  # type: ignore[arg-type]

    monkeypatch.setattr(History, "on_train_epoch_start", stop)
    with pytest.raises(KeyboardInterrupt):
        train_on_boxes(asked, tmp_path / "parts", console=QUIET)
    monkeypatch.undo()
    assert not (tmp_path / "parts" / "model.pt").exists()
    parts = load_model(train_on_boxes(asked, tmp_path / "parts", resume=True, console=QUIET))[0].state_dict()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limits.strip_width": 0}, "limits.strip_width must be above 0, got 0"),
        ({"limits.size_low": 0.95, "limits.size_high": 0.9}, "limits.size_low 0.95 is above limits.size_high 0.9"),
        ({"augment.scale": 1.0}, "augment.scale is a share from 0 to below 1, got 1.0"),
        ({"limits.box": False}, "there is no limit: with limits.box false, give limits.size_slack"),
        ({"limits.size_slack": 1.5}, "limits.size_slack is a share from 0 to below 1, got 1.5"),
        ({"limits.centroid_slack": 0.0}, "limits.centroid_slack must be above 0"),
        (
            {"log_barrier.weights": {"strips": -1.0}},
            "log_barrier: the weight of 'strips' must be finite and not negative",
        ),
        ({"training.prior": 1.5}, "training.prior is a share between 0 and 1"),
        ({"log_barrier.mu": 1.5}, "log_barrier: t grows by mu, or to final_t: one of them must be null"),
        ({"log_barrier.t": 0.0}, "log_barrier: t must be positive and finite"),
        ({"data.margin": -1}, "data.margin must not be negative"),
        ({"data.prepared": ""}, "data.prepared: which prepared set"),
        ({"data.prepared": "nowhere"}, "nowhere is no prepared set"),
        ({"data.boxes": "nothing.csv"}, "nothing.csv"),
        ({"method": "barier"}, "there is no method 'barier'"),
        (
            {"log_barrier.weights": {"strip": 2.0}},
            "log_barrier.weights: there is no limit 'strip'; there are: strips, outside, size, given_size, centroid",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    for name, value in changes.items():
        group, _, key = name.rpartition(".")
        changed = replace(getattr(asked, group), **{key: value}) if group else value
        asked = replace(asked, **{group or key: changed})
    with pytest.raises((ValueError, OSError), match=message.replace(".", r"\.").replace("'", ".")):
        train_on_boxes(asked, tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_t_ends_where_it_should_however_many_epochs(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = replace(settings(tmp_path / "set", TrainSettings), training=replace(TRAINING, epochs=4))
    asked = replace(asked, log_barrier=replace(asked.log_barrier, t=0.5, final_t=4.0))
    train_on_boxes(asked, tmp_path / "run", console=QUIET)
    t = [float(row["t"]) for row in rows(tmp_path / "run" / "metrics.csv")]
    assert t == pytest.approx([0.5, 1.0, 2.0, 4.0], rel=1e-4)


def test_the_shipped_config_says_what_the_defaults_say() -> None:
    file = Path(__file__).parents[3] / "configs" / "promise12.yaml"
    shipped = settings_from(
        TrainSettings, parse(settings_parser("ringfence train", "", TrainSettings()), ["--config", str(file)])
    )
    assert replace(shipped, data=TrainSettings().data) == TrainSettings()


def test_masks_have_the_labels_of_the_data_set(tmp_path: Path) -> None:
    """A folder whose labels are 1, 2 and 4: prepared, trained on, predicted, and 4 is still 4."""
    source = tmp_path / "source"
    for folder in ("imagesTr", "labelsTr"):
        (source / folder).mkdir(parents=True)
    labels = np.zeros((20, 20, 3), np.uint8)
    for place, label in enumerate((1, 2, 4)):
        labels[6 * place + 1 : 6 * place + 6, 5:15, 1] = label
    for name in "abc":
        nibabel.save(
            nibabel.Nifti1Image(labels.astype(np.int16) * 50, np.eye(4)), source / f"imagesTr/{name}_0000.nii"
        )
        nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), source / f"labelsTr/{name}.nii")
    facts = {
        "labels": {"background": 0, "x": 1, "y": 2, "z": 4},
        "channel_names": {"0": "CT"},
        "file_ending": ".nii",
    }
    (source / "dataset.json").write_text(json.dumps(facts))
    assert main(["prepare", "folder", str(source), str(tmp_path / "set"), "--size", "20", "20"]) == 0
    model = train_on_boxes(settings(tmp_path / "set", TrainSettings), tmp_path / "run", console=QUIET)
    network, card = load_model(model)
    assert card.labels == (1, 2, 4)
    with torch.no_grad():  # a network that knows: grey values 0, 64, 128, 255 are the classes
        network.network.weight.zero_()
        for k, grey in enumerate((0.0, 0.25, 0.5, 1.0)):
            network.network.weight[k, 0, 2, 2], network.network.bias[k] = 2000.0 * grey, -1000.0 * grey**2
        network.offset.zero_()
    save_model(model, network, card)
    assert main(["predict", str(model), str(source / "imagesTr"), str(tmp_path / "masks")]) == 0
    mask = np.asanyarray(nibabel.load(tmp_path / "masks/a.nii").dataobj)
    assert np.array_equal(mask, labels)


def test_a_checkpoint_of_other_classes_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", classes=1)
    asked = settings(tmp_path / "set", TrainSettings)

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OneRun, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            train_on_boxes(asked, tmp_path / "run", console=QUIET)
    before = (tmp_path / "run/last.ckpt").read_bytes()
    noted = json.loads((tmp_path / "run/environment.json").read_text())
    del noted["manifest"]  # as if nobody had looked at the data
    (tmp_path / "run/environment.json").write_text(json.dumps(noted))
    for other in ({"classes": 2}, {"channels": 2}):
        make_prepared(tmp_path / "set", **other)
        with pytest.raises(ValueError, match=r"last.ckpt is of another network: .* Has the prepared set changed\?"):
            train_on_boxes(asked, tmp_path / "run", resume=True, console=QUIET)
    assert (tmp_path / "run/last.ckpt").read_bytes() == before
    make_prepared(tmp_path / "set", classes=1)
    assert load_model(train_on_boxes(asked, tmp_path / "run", resume=True, console=QUIET))[1].labels == (1,)


def test_a_class_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", classes=2)
    replace(prepared, classes=("class 1", "class 2", "class 3"), labels=(1, 2, 3)).write_manifest()
    with pytest.raises(ValueError, match="no training image has a box of class 3"):
        train_on_boxes(settings(tmp_path / "set", TrainSettings), tmp_path / "run", console=QUIET)


def test_resuming_on_other_data_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    train_on_boxes(asked, tmp_path / "run", console=QUIET)
    before = (tmp_path / "run" / "environment.json").read_text()
    make_prepared(tmp_path / "set", seed=1)
    with pytest.raises(ValueError, match="--resume: the run in .* began with another manifest"):
        train_on_boxes(asked, tmp_path / "run", resume=True, console=QUIET)
    assert (tmp_path / "run" / "environment.json").read_text() == before


def test_somebody_without_any_mask_can_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No case for validation either: limits are counted where there are boxes, and Dice is unknown."""
    prepared = make_prepared(tmp_path / "set", masked=False)
    unmasked = tuple(replace(case, split="train", masked=False) for case in prepared.cases)
    replace(prepared, cases=unmasked).write_manifest()
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    lines = [f"{case.name},{number},class 1,4,16,4,15" for case in unmasked for number in (2, 3)]
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    for patch in (None, [4, 20, 16]):
        asked = settings(tmp_path / "set", TrainSettings)
        asked = replace(asked, data=replace(asked.data, boxes=str(tmp_path / "boxes.csv"), patch=patch))
        if patch:
            asked = replace(asked, network=replace(NETWORK, class_path="torch.nn.Conv3d"))
        out = tmp_path / f"run-{patch is None}"
        load_model(train_on_boxes(asked, out, console=Console(stderr=True)))
        last = rows(out / "metrics.csv")[-1]
        assert last["dice"] == ""
        assert 0.0 <= float(last["satisfaction/strips"]) <= 1.0
        said = capsys.readouterr().err
        assert "No case for validation has a mask: limits are counted, and there is no Dice." in said
        assert "DSC ?, limits satisfied" in said


def test_sizes_and_centroids_alone_train_too(tmp_path: Path) -> None:
    """The synthetic task's limits on real images, without a box; the default weight of strips does no harm."""
    make_prepared(tmp_path / "set", cases=6, shape=(8, 32, 32))
    asked = settings(tmp_path / "set", TrainSettings)
    limits = replace(asked.limits, box=False, size_slack=0.1, centroid_slack=3.0)
    barrier = replace(asked.log_barrier, t=1.0, final_t=5.0, final_temperature=0.1)
    training = replace(TRAINING, epochs=25, lr=0.05, prior=0.01)  # as the synthetic task has them
    asked = replace(asked, limits=limits, log_barrier=barrier, training=training)
    train_on_boxes(asked, tmp_path / "run", console=QUIET)
    epochs = rows(tmp_path / "run" / "metrics.csv")
    assert max(float(row["dice"]) for row in epochs) > 0.8
    assert "satisfaction/given_size" in epochs[0]
    assert "satisfaction/strips" not in epochs[0]


def test_a_case_without_a_mask_has_no_dice_and_no_supervision(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", cases=6)
    cases = [
        replace(case, split="validation" if number > 2 else "train") for number, case in enumerate(prepared.cases)
    ]
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    (tmp_path / "boxes.csv").write_text("\n".join([header, *(f"case{n},2,class 1,4,16,4,15" for n in range(6))]))
    scores = []
    for place in (4, None):
        kept = [replace(case, masked=number != place) for number, case in enumerate(cases)]
        if place is None:
            del kept[4]  # the case that nobody judged is not there at all
        replace(prepared, cases=tuple(kept)).write_manifest()
        text = (tmp_path / "boxes.csv").read_text()
        (tmp_path / "boxes.csv").write_text(text if place else text.replace("case4,2,class 1,4,16,4,15\n", ""))
        asked = settings(tmp_path / "set", TrainSettings)
        asked = replace(asked, data=replace(asked.data, boxes=str(tmp_path / "boxes.csv")))
        train_on_boxes(asked, tmp_path / f"run-{place}", console=QUIET)
        scores.append([row["dice"] for row in rows(tmp_path / f"run-{place}" / "metrics.csv")])
    assert scores[0] == scores[1]
    replace(
        prepared, cases=tuple(replace(case, masked=number != 1) for number, case in enumerate(cases))
    ).write_manifest()
    with pytest.raises(ValueError, match="full_supervision learns from masks, and case1 has none"):
        train_on_boxes(replace(asked, method="full_supervision"), tmp_path / "full", console=QUIET)


@pytest.mark.parametrize("method", METHODS)
def test_all_that_is_measured_is_the_same_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    make_prepared(tmp_path / "set")
    asked = replace(settings(tmp_path / "set", TrainSettings), method=method)
    train_on_boxes(asked, tmp_path / "whole", console=QUIET)

    def stop(self: object, trainer: object, module: object) -> None:
        if module.current_epoch == 1:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    monkeypatch.setattr(History, "on_train_epoch_start", stop)
    with pytest.raises(KeyboardInterrupt):
        train_on_boxes(asked, tmp_path / "parts", console=QUIET)
    monkeypatch.undo()
    train_on_boxes(asked, tmp_path / "parts", resume=True, console=QUIET)
    both = [rows(tmp_path / name / "metrics.csv") for name in ("whole", "parts")]
    for row in (*both[0], *both[1]):
        del row["seconds_train"], row["seconds_validation"]
    assert both[0] == both[1]


def test_resuming_with_other_boxes_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    header = "case,slice,class,row_low,row_high,column_low,column_high\n"
    file = tmp_path / "boxes.csv"
    file.write_text(header + "".join(f"case{n},2,class 1,4,16,4,15\n" for n in range(3)))
    asked = settings(tmp_path / "set", TrainSettings)
    asked = replace(asked, data=replace(asked.data, boxes=str(file)))
    train_on_boxes(asked, tmp_path / "run", console=QUIET)
    file.write_text(file.read_text().replace("4,16", "5,16"))
    with pytest.raises(ValueError, match="--resume: the run in .* began with another boxes"):
        train_on_boxes(asked, tmp_path / "run", resume=True, console=QUIET)


def test_masks_of_training_images_give_no_dice(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    replace(prepared, cases=tuple(replace(case, split="train") for case in prepared.cases)).write_manifest()
    train_on_boxes(settings(tmp_path / "set", TrainSettings), tmp_path / "run", console=QUIET)
    assert {row["dice"] for row in rows(tmp_path / "run" / "metrics.csv")} == {""}


def test_what_counts_as_nothing_outside_reaches_the_monitor(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    relative = replace(asked, log_barrier=replace(asked.log_barrier, unit="relative"))
    for one in (asked, relative):
        module = make_module(one, box_task(one), "log_barrier", 0)
        assert module.monitor.tolerance == {"outside": 1.0}


def test_a_set_without_any_box_says_so(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    for case in prepared.cases:
        image, mask = prepared.load(case)
        np.savez(tmp_path / "set" / case.file, image=image, mask=0 * mask)
    with pytest.raises(ValueError, match="no training image has a box of class 1"):
        train_on_boxes(settings(tmp_path / "set", TrainSettings), tmp_path / "run", console=QUIET)
