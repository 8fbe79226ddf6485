"""Training from boxes, end to end at tiny size: every method, slices and volumes, without a labelled pixel."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from rich.console import Console

from prepared_sets import described_anew, make_prepared
from ringfence.cli import main
from ringfence.weak import (
    AugmentSettings,
    BoxCompareSettings,
    BoxDataSettings,
    NetworkSettings,
    ScheduleSettings,
    Task,
    TrainingSettings,
    TrainSettings,
    box_task,
    compare,
    from_preset,
    train,
)
from ringfence.weak.experiments.settings import BoxSettings
from ringfence.weak.inference.model_file import read_model, save_model
from ringfence.weak.training.fit import make_module
from ringfence.weak.training.history import History
from ringfence.weak.training.methods import METHODS
from ringfence.weak.training.run_folder import OneRun
from ringfence.weak.training.views import View

QUIET = Console(quiet=True)
NETWORK = NetworkSettings("torch.nn.Conv2d", {"kernel_size": 5, "padding": 2})
TRAINING = TrainingSettings(epochs=2, batch_size=4, lr=1e-2, device="cpu", prior=None)


def settings(folder: Path, kind: type[BoxSettings], **changes: object) -> BoxSettings:
    begun = replace(from_preset(kind, "boxes"), network=NETWORK, training=TRAINING)
    return replace(begun, data=BoxDataSettings(prepared=str(folder)), **changes)


def task_of(asked: BoxSettings) -> Task:
    return box_task(asked.data, asked.constraints)


def trained(asked: TrainSettings, out: Path, *, resume: bool = False) -> Path:
    """The model's file."""
    return train(asked, out, resume=resume, console=QUIET).model_file


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def test_every_method_is_compared_by_patients(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set", classes=2, channels=2, cases=5)
    asked = settings(tmp_path / "set", BoxCompareSettings, methods=list(METHODS), seeds=[0])
    folder = compare(asked, tmp_path / "run", console=QUIET).path
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
            "satisfaction/box_size",
        ):
            assert 0.0 <= float(epochs[-1][name]) <= 1.0
        network, card = read_model(folder / "seed-0" / method / "model.safetensors")
        assert (card.classes, len(card.channels)) == (("class 1", "class 2"), 2)
        assert network(torch.zeros(1, 2, 24, 20)).shape == (1, 3, 24, 20)


def test_training_and_model_know_the_flips_and_masks_their_dice_loss(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings, augment=AugmentSettings(flip=["up-down", "left-right"]))
    task = task_of(asked)
    views = make_module(asked, task, "penalty", 0).judging.every
    assert [view.flip for view in views] == [(), (-2,), (-1,), (-2, -1)]
    assert read_model(trained(asked, tmp_path / "run"))[1].flips == ("up-down", "left-right")
    once = replace(asked, augment=replace(asked.augment, average=False))
    assert make_module(once, task, "penalty", 0).judging.every == [View()]
    batch = {name: tensor[:3] for name, tensor in task.train.items()}
    losses = []
    for dice in (0.0, 1.0):
        module = make_module(asked.with_method("full_supervision", dice=dice), task, "full_supervision", 0)
        module.augmentation = None
        losses.append(module.training_step(batch, 0).item())
    assert 0.1 < losses[1] - losses[0] <= 1.0


def test_constraints_are_counted_alike_whatever_a_method_measures_them_in(tmp_path: Path) -> None:
    """The same network: as many constraints hold, and by the same pixels the others do not."""
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    task = task_of(asked)
    seen = []
    for unit in ("pixels", "relative"):
        module = make_module(asked.with_method("penalty", unit=unit), task, "penalty", 0)
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
    model = trained(asked, tmp_path / "run")
    network, card = read_model(model)
    assert card.patch == (6, 20, 16)
    assert card.preprocessing.size == (24, 20)  # of the slices, not of the patch: predict resizes to it
    assert network(torch.zeros(1, 1, 6, 20, 16)).shape == (1, 2, 6, 20, 16)
    assert float(rows(tmp_path / "run" / "metrics.csv")[-1]["satisfaction"]) <= 1.0


def test_it_learns_what_a_threshold_could_do(tmp_path: Path) -> None:
    """Bright ellipsoids on a dark ground, from boxes alone: a convolution finds most of them."""
    make_prepared(tmp_path / "set", cases=6, shape=(8, 32, 32))
    small = from_preset(TrainSettings, "boxes-small")
    asked = replace(small, data=BoxDataSettings(prepared=str(tmp_path / "set")), network=NETWORK)
    trained(replace(asked, training=replace(TRAINING, epochs=8, lr=0.1)), tmp_path / "run")
    assert max(float(row["dice"]) for row in rows(tmp_path / "run" / "metrics.csv")) > 0.8


@pytest.mark.parametrize("method", ["log_barrier", "augmented_lagrangian"])
def test_no_labelled_pixel_is_used(tmp_path: Path, method: str) -> None:
    """Training masks that are whole boxes, with the same boxes, give the very same network."""
    prepared = make_prepared(tmp_path / "set")
    weights = []
    for name in ("set", "boxes"):
        if name == "boxes":
            boxes = make_prepared(tmp_path / "boxes")
            for case in prepared.of("train"):
                image, mask = prepared.load(case)
                for labels in mask:
                    if labels.any():
                        down, right = np.nonzero(labels)
                        labels[down.min() : down.max() + 1, right.min() : right.max() + 1] = 1
                np.savez(tmp_path / "boxes" / case.file, image=image, mask=mask)
            described_anew(boxes)
        asked = replace(settings(tmp_path / name, TrainSettings), method=method)
        weights.append(read_model(trained(asked, tmp_path / f"run-{name}"))[0].state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"constraints": {"strips": {"width": 0}}}, "constraints.strips.width must be a whole number, at least 1, got 0"),
        ({"constraints": {"strips": {"widht": 1}}}, "constraints.strips.widht: there is no such setting; did you mean 'width'"),
        ({"constraints": {"box_size": {"low": 0.95, "high": 0.9}}}, "constraints.box_size.low 0.95 is above high 0.9"),
        ({"constraints": {"strip": {}}}, "constraints: there is no kind 'strip'; did you mean 'strips'"),
        ({"constraints": {"strips": None}}, "constraints: there is none; there are: "),
        ({"constraints": {"size": {"slack": 1.5}}}, "constraints.size.slack is a fraction from 0 to 1, got 1.5"),
        ({"constraints": {"centroid": {"slack": 0.0}}}, "constraints.centroid.slack must be positive and finite"),
        ({"augment.scale": 1.0}, "augment.scale is a fraction from 0 to below 1, got 1.0"),
        ({"augment.flip": ["slices"]}, "augment.flip: slices can be flipped in volumes alone: train on these (data.volumes true, or data.patch), or"),
        ({"log_barrier.weights": {"strips": -1.0}}, "log_barrier: the weight of 'strips' must be finite and not negative"),
        ({"training.prior": 1.5}, "training.prior is a fraction from 0 to below 1, got 1.5"),
        ({"training.prior": 0.0}, "training.prior is a fraction between 0 and 1, got 0.0"),
        ({"log_barrier.mu": 1.5}, "t grows by mu, or to final_t: one of them must be null"),
        ({"log_barrier.t": 0.0}, "t must be positive and finite"),
        ({"data.margin": -1}, "data.margin must be a whole number, at least 0, got -1"),
        ({"data.patch": [8, 8]}, "data.patch is three numbers: slices, rows and columns; got [8, 8]"),
        ({"data.prepared": ""}, "data.prepared: which prepared set"),
        ({"data.prepared": "nowhere"}, "nowhere is not a prepared set"),
        ({"data.boxes": "nothing.csv"}, "nothing.csv"),
        ({"method": "barier"}, "there is no method 'barier'"),
        ({"seed": -1}, "seed must be a whole number, at least 0, got -1"),
        ({"log_barrier.weights": {"strip": 2.0}}, "log_barrier.weights: there is no constraint 'strip'; there are: strips, outside, box_size"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    make_prepared(tmp_path / "set")
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        trained(changed(settings(tmp_path / "set", TrainSettings), changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def changed(asked: TrainSettings, changes: dict[str, object]) -> TrainSettings:
    for name, value in changes.items():
        group, _, key = name.rpartition(".")
        if group in METHODS:
            asked = asked.with_method(group, **{key: value})
        else:
            new = replace(getattr(asked, group), **{key: value}) if group else value
            asked = replace(asked, **{group or key: new})
    return asked


def test_t_ends_where_it_should_however_many_epochs(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings).with_method("log_barrier", t=0.5, final_t=4.0)
    trained(replace(asked, training=replace(TRAINING, epochs=4)), tmp_path / "run")
    t = [float(row["t"]) for row in rows(tmp_path / "run" / "metrics.csv")]
    assert t == pytest.approx([0.5, 1.0, 2.0, 4.0], rel=1e-4)


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
    model = trained(settings(tmp_path / "set", TrainSettings), tmp_path / "run")
    network, card = read_model(model)
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
            trained(asked, tmp_path / "run")
    before = (tmp_path / "run/last.ckpt").read_bytes()
    noted = json.loads((tmp_path / "run/environment.json").read_text())
    del noted["manifest"]  # as if nobody had looked at the data
    (tmp_path / "run/environment.json").write_text(json.dumps(noted))
    for other in ({"classes": 2}, {"channels": 2}):
        make_prepared(tmp_path / "set", **other)
        with pytest.raises(ValueError, match=r"last.ckpt is of another network: .* Has the prepared set changed\?"):
            trained(asked, tmp_path / "run", resume=True)
    assert (tmp_path / "run/last.ckpt").read_bytes() == before
    make_prepared(tmp_path / "set", classes=1)
    assert read_model(trained(asked, tmp_path / "run", resume=True))[1].labels == (1,)


def test_a_class_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set", classes=2)
    replace(prepared, classes=("class 1", "class 2", "class 3"), labels=(1, 2, 3)).write_manifest()
    with pytest.raises(ValueError, match="no training image has a box of class 3"):
        trained(settings(tmp_path / "set", TrainSettings), tmp_path / "run")


def test_resuming_on_other_data_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    trained(asked, tmp_path / "run")
    before = (tmp_path / "run" / "environment.json").read_text()
    make_prepared(tmp_path / "set", seed=1)
    with pytest.raises(ValueError, match="--resume: the run in .* began with another manifest"):
        trained(asked, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "environment.json").read_text() == before


def test_somebody_without_any_mask_can_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No case for validation either: constraints are counted where there are boxes, and Dice is unknown."""
    prepared = make_prepared(tmp_path / "set", masked=False)
    unmasked = tuple(replace(case, split="train", masked=False) for case in prepared.cases)
    described_anew(replace(prepared, cases=unmasked))
    header = "case,slice,class,row_low,row_high,column_low,column_high"
    lines = [f"{case.name},{number},class 1,4,16,4,15" for case in unmasked for number in (2, 3)]
    (tmp_path / "boxes.csv").write_text("\n".join([header, *lines]))
    for patch in (None, [4, 20, 16]):
        asked = settings(tmp_path / "set", TrainSettings)
        asked = replace(asked, data=replace(asked.data, boxes=str(tmp_path / "boxes.csv"), patch=patch))
        if patch:
            asked = replace(asked, network=replace(NETWORK, class_path="torch.nn.Conv3d"))
        out = tmp_path / f"run-{patch is None}"
        assert train(asked, out, console=Console(stderr=True)).model_file.exists()
        last = rows(out / "metrics.csv")[-1]
        assert last["dice"] == ""
        assert 0.0 <= float(last["satisfaction/strips"]) <= 1.0
        said = capsys.readouterr().err
        assert "No case for validation has a mask: constraints are counted, and there is no Dice." in said
        assert "DSC ?, constraints satisfied" in said


def test_sizes_and_centroids_alone_train_too(tmp_path: Path) -> None:
    """The synthetic task's constraints on real images, without a box; the preset's weight of strips does no harm."""
    make_prepared(tmp_path / "set", cases=6, shape=(8, 32, 32))
    asked = settings(
        tmp_path / "set",
        TrainSettings,
        constraints={"size": {"slack": 0.1}, "centroid": {"slack": 3.0}},
        schedule=ScheduleSettings(None),
    )
    asked = asked.with_method("log_barrier", t=1.0, final_t=5.0, final_temperature=0.1)
    training = replace(TRAINING, epochs=12, lr=0.05, prior=0.01)  # as the synthetic task has them
    trained(replace(asked, training=training), tmp_path / "run")
    epochs = rows(tmp_path / "run" / "metrics.csv")
    assert max(float(row["dice"]) for row in epochs) > 0.8
    assert "satisfaction/size" in epochs[0]
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
        described_anew(replace(prepared, cases=tuple(kept)))
        text = (tmp_path / "boxes.csv").read_text()
        (tmp_path / "boxes.csv").write_text(text if place else text.replace("case4,2,class 1,4,16,4,15\n", ""))
        asked = settings(tmp_path / "set", TrainSettings)
        asked = replace(asked, data=replace(asked.data, boxes=str(tmp_path / "boxes.csv")))
        trained(asked, tmp_path / f"run-{place}")
        scores.append([row["dice"] for row in rows(tmp_path / f"run-{place}" / "metrics.csv")])
    assert scores[0] == scores[1]
    replace(
        prepared, cases=tuple(replace(case, masked=number != 1) for number, case in enumerate(cases))
    ).write_manifest()
    with pytest.raises(ValueError, match="full_supervision learns from masks, and case1 has none"):
        trained(replace(asked, method="full_supervision"), tmp_path / "full")


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_training_ends_as_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """To the last digit of everything that was measured, and to the last bit of every weight."""
    make_prepared(tmp_path / "set")
    asked = replace(settings(tmp_path / "set", TrainSettings), method=method)
    trained(asked, tmp_path / "whole")
    start = History.on_train_epoch_start

    def stop(history: History, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if module.current_epoch == 1:
            raise KeyboardInterrupt
        start(history, trainer, module)

    with monkeypatch.context() as patch:
        patch.setattr(History, "on_train_epoch_start", stop)
        with pytest.raises(KeyboardInterrupt):
            trained(asked, tmp_path / "parts")
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    assert len(rows(tmp_path / "parts" / "metrics.csv")) == 1
    trained(asked, tmp_path / "parts", resume=True)
    both = [rows(tmp_path / name / "metrics.csv") for name in ("whole", "parts")]
    for row in (*both[0], *both[1]):
        del row["seconds_train"], row["seconds_validation"]
    assert both[0] == both[1]
    whole, parts = (
        read_model(tmp_path / name / "model.safetensors")[0].state_dict() for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_resuming_with_other_boxes_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    header = "case,slice,class,row_low,row_high,column_low,column_high\n"
    file = tmp_path / "boxes.csv"
    file.write_text(header + "".join(f"case{n},2,class 1,4,16,4,15\n" for n in range(3)))
    asked = settings(tmp_path / "set", TrainSettings)
    asked = replace(asked, data=replace(asked.data, boxes=str(file)))
    trained(asked, tmp_path / "run")
    file.write_text(file.read_text().replace("4,16", "5,16"))
    with pytest.raises(ValueError, match="--resume: the run in .* began with another boxes"):
        trained(asked, tmp_path / "run", resume=True)


def test_resuming_with_another_file_of_a_constraint_is_refused(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    file = tmp_path / "sizes.csv"
    file.write_text("case,slice,class,low,high\n" + "".join(f"case{n},2,class 1,40,190\n" for n in range(4)))
    asked = settings(tmp_path / "set", TrainSettings, constraints={"outside": {}, "size": {"file": str(file)}})
    trained(asked, tmp_path / "run")
    assert trained(asked, tmp_path / "run", resume=True).exists()
    file.write_text(file.read_text().replace("40,190", "41,190"))
    with pytest.raises(ValueError, match="--resume: the run in .* began with another size"):
        trained(asked, tmp_path / "run", resume=True)


def test_masks_of_training_images_give_no_dice(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    replace(prepared, cases=tuple(replace(case, split="train") for case in prepared.cases)).write_manifest()
    trained(settings(tmp_path / "set", TrainSettings), tmp_path / "run")
    assert {row["dice"] for row in rows(tmp_path / "run" / "metrics.csv")} == {""}


def test_what_counts_as_nothing_outside_reaches_the_monitor(tmp_path: Path) -> None:
    make_prepared(tmp_path / "set")
    asked = settings(tmp_path / "set", TrainSettings)
    relative = asked.with_method("log_barrier", unit="relative")
    for one in (asked, relative):
        module = make_module(one, task_of(one), "log_barrier", 0)
        assert module.monitor.tolerance == {"outside": 1.0}


def test_a_set_without_any_box_says_so(tmp_path: Path) -> None:
    prepared = make_prepared(tmp_path / "set")
    for case in prepared.cases:
        image, mask = prepared.load(case)
        np.savez(tmp_path / "set" / case.file, image=image, mask=0 * mask)
    described_anew(prepared)
    with pytest.raises(ValueError, match="no training image has a box of class 1"):
        trained(settings(tmp_path / "set", TrainSettings), tmp_path / "run")
