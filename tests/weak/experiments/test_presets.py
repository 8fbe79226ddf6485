"""Presets and files of settings: all that is shipped can be read, and what is written reads back as itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ringfence.weak import (
    BoxCompareSettings,
    BoxDataSettings,
    NetworkSettings,
    SyntheticSettings,
    TrainSettings,
    from_file,
    from_preset,
    preset_names,
)
from ringfence.weak.constraints.outside import Outside
from ringfence.weak.experiments.parsing import as_config
from ringfence.weak.experiments.presets import about_preset
from ringfence.weak.training.run_folder import dump

KINDS = {name: SyntheticSettings if name.startswith("synthetic") else TrainSettings for name in preset_names()}


@pytest.mark.parametrize("name", KINDS)
def test_every_preset_is_read_and_says_what_it_is_for(name: str) -> None:
    assert len(about_preset(name)) > 20
    settings = from_preset(KINDS[name], name)
    content = yaml.safe_load(
        Path(__file__).parents[3].joinpath(f"src/ringfence/weak/presets/{name}.yaml").read_text()
    )
    config = as_config(settings)
    for group, values in content.items():
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            assert (config[group][key] if key else config[group]) == value, (group, key)
    if KINDS[name] is TrainSettings:
        assert as_config(from_preset(BoxCompareSettings, name))["log_barrier"] == config["log_barrier"]


@pytest.mark.parametrize("name", KINDS)
def test_settings_read_back_from_what_a_run_stores(name: str, tmp_path: Path) -> None:
    settings = from_preset(KINDS[name], name)
    (tmp_path / "config.yaml").write_text(dump(as_config(settings)))
    assert from_file(KINDS[name], tmp_path / "config.yaml") == settings


def test_a_constraint_as_an_object_is_stored_by_its_path(tmp_path: Path) -> None:
    asked = TrainSettings(constraints={"outside": Outside(), "size": {"slack": 0.1}, "strips": None})
    stored = as_config(asked)["constraints"]
    assert stored["outside"]["class_path"] == "ringfence.weak.constraints.outside.Outside"
    assert (stored["size"], stored["strips"]) == ({"slack": 0.1}, None)
    (tmp_path / "c.yaml").write_text(dump(as_config(asked)))
    assert from_file(TrainSettings, tmp_path / "c.yaml").constraints == stored


def test_changes_by_dotted_names() -> None:
    changes = {"training.epochs": 3, "log_barrier.t": 0.7, "constraints.strips.width": 9, "method": "penalty"}
    changed = from_preset(TrainSettings, "boxes", changes)
    plain = from_preset(TrainSettings, "boxes")
    assert (changed.training.epochs, changed.method_settings["log_barrier"].t, changed.method) == (
        3,
        0.7,
        "penalty",
    )
    assert changed.constraints == plain.constraints | {"strips": {"width": 9}}
    back = replace(changed, training=plain.training, constraints=plain.constraints, method=plain.method)
    assert back.with_method("log_barrier", t=plain.method_settings["log_barrier"].t) == plain
    with pytest.raises(ValueError, match="there is no setting 'training.epoch'; did you mean 'training.epochs'"):
        plain.changed({"training.epoch": 3})
    with pytest.raises(ValueError, match="training.lr must be positive"):
        plain.changed({"training.lr": -1.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainig: {lr: 1}\n", "there is no option 'trainig.lr'; did you mean 'training.lr'?"),
        ("network: torch.nn.Conv2d\n", "network has settings of its own, as in network.class_path; got torch.nn.Conv2d"),
        ("log_barrier: 5\n", "log_barrier has settings of its own, as in log_barrier.temperature; got 5"),
        ("log_barrier: {t: -1}\n", "log_barrier: t must be positive and finite, got t=-1"),
        ("seed: [1]\n", "seed:"),
        ("preset: boxess\n", "there is no preset 'boxess'; did you mean 'boxes'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=".*") as error:
        from_file(TrainSettings, tmp_path / "c.yaml")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("training.device", "gpu", "training.device is one of auto, cpu, cuda; got 'gpu'"),
        ("training.precision", "fp16", "training.precision is one of auto, 32, bf16, 64; got 'fp16'"),
        ("data.streamed", True, "data.streamed is one of auto, always, never; got True"),
        ("log_barrier.unit", "pixel", "unit is one of pixels, relative, odds; got 'pixel'"),
        ("refinement.teachers", None, "refinement.teachers is one of all, last; got None"),
    ],
)
def test_a_word_that_is_none_of_those_is_refused_in_python_too(name: str, value: object, message: str) -> None:
    """A device "gpu" was a CPU, without a word."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_preset(TrainSettings, "boxes", {name: value})


def test_a_number_may_stand_for_its_word(tmp_path: Path) -> None:
    assert from_preset(TrainSettings, "boxes", {"training.precision": 32}).training.precision == "32"
    file = tmp_path / "some.yaml"
    file.write_text("training: {precision: 64}\n", encoding="utf-8")
    assert from_file(TrainSettings, file).training.precision == "64"
    file.write_text("training: {precision: 16}\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"^training.precision: expected one of auto, 32, bf16, 64\. Got value: 16$"
    ):
        from_file(TrainSettings, file)


def test_methods_that_are_left_out_have_their_defaults() -> None:
    asked = TrainSettings(data=BoxDataSettings("x"), network=NetworkSettings("a.B", {}), method_settings={})
    assert asked.method_settings == TrainSettings().method_settings
