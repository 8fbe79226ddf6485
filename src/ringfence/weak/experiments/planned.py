"""Settings by plan: what `ringfence plan` prints, and `ringfence train` begins from if nothing is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import TrainSettings
from ringfence.weak.planning.choice import Choice, Device
from ringfence.weak.planning.fingerprint import read_fingerprint
from ringfence.weak.planning.plan import Plan, make_plan
from ringfence.weak.planning.rounds import LOOKS, REFINE
from ringfence.weak.tasks.boxes import checked_patch, prepared_of
from ringfence.weak.tasks.file_boxes import MASKS, file_boxes
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.accelerator import choose_accelerator, multiplies_bf16
from ringfence.weak.training.methods import FullSupervision, method_named
from ringfence.weak.training.settings import TrainingSettings

PRESET: Final = TrainSettings.preset
"""What a plan changes."""


def plan(data: BoxDataSettings | str | Path, device: str = "auto", precision: str = "auto") -> Plan:
    """Look at a prepared set, and derive every setting that follows from it; see docs/plan.md.

    Args:
        data: the folder of the set; or settings, where boxes are in a file.
        device: auto, cpu or cuda: where it will be trained.
        precision: of the network, where it is known already: a CPU's in float32 takes fewer steps.
    """
    words: dict[str, Any] = {"device": device, "precision": precision}
    asked = TrainingSettings(**words)  # which checks them
    if not isinstance(data, BoxDataSettings):
        data = BoxDataSettings(prepared=str(data))
    prepared = prepared_of(data)
    checked_patch(data.patch, prepared)
    given_boxes = file_boxes(data, prepared)
    fingerprint = read_fingerprint(prepared, given_boxes.boxes if given_boxes else None, data.smallest_part)
    accelerator: Device = choose_accelerator(asked.device)
    given = [Choice("data.prepared", data.prepared, "the set")]
    if data.boxes is not None:
        given.append(Choice("data.boxes", data.boxes, "around the masks" if data.boxes == MASKS else "its boxes"))
    elif given_boxes is not None:
        given.append(Choice("data.boxes", None, f"those of {given_boxes.file.name}, which came with the set"))
    if data.folds is not None:
        given.append(Choice("data.folds", data.folds, "of the training cases, all of them but for one part"))
        given.append(Choice("data.fold", data.fold, "the part that is held out"))
    bf16 = asked.precision in ("auto", "bf16") and multiplies_bf16()
    made = make_plan(
        fingerprint,
        accelerator,
        drawn=given_boxes is not None,
        bf16=bf16,
        patch=data.patch,
        volumes=data.volumes,
    )
    return replace(made, choices=(*given, *made.choices))


def planned(made: Plan, changes: Mapping[str, Any] | None = None) -> TrainSettings:
    """The settings that a plan makes, with some of them changed: ``planned(plan(folder), {"seed": 1})``."""
    changes = changes or {}
    made = for_method(made, str(changes.get("method", TrainSettings.method)))
    return from_preset(TrainSettings, PRESET, {**made.changes, **changes})


def for_method(made: Plan, method: str) -> Plan:
    """The plan as it is for a method, by its name or class path: one that has masks needs no labels."""
    if method_named(method) != FullSupervision.name:
        return made
    return replace(made, choices=tuple(one for one in made.choices if one.name not in (LOOKS, REFINE)))


def as_yaml(made: Plan) -> str:
    """The plan as a file for `ringfence train`: every setting with its reason as a comment."""
    lines = [f"# {line}" for line in str(made).splitlines()[:1]]
    lines += [f"# note: {remark}" for remark in made.remarks]
    lines.append(f"preset: {PRESET}")
    tree: dict[str, Any] = {}
    for one in made.choices:
        *groups, last = one.name.split(".")
        inner = tree
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = one
    # in a file constraints are all that there are: those that the plan does not speak of are the preset's
    tree["constraints"] = {**from_preset(TrainSettings, PRESET).constraints, **tree["constraints"]}
    return "\n".join([*lines, *_lines(tree, 0), ""])


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        begin = f"{'  ' * depth}{name}:"
        if isinstance(value, Choice):
            lines.append(f"{begin} {json.dumps(value.value)}  # {value.reason}")
        elif value and any(isinstance(one, (Choice, dict)) for one in value.values()):
            lines += [begin, *_lines(value, depth + 1)]
        else:
            lines.append(f"{begin} {json.dumps(value)}")
    return lines
