"""`ringfence train PREPARED`: one model from boxes, for `ringfence predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from ringfence.cli import Interrupted
from ringfence.cli.experiment import Experiment
from ringfence.cli.quick_start import quick_start
from ringfence.extras import require
from ringfence.weak.experiments.settings import TrainSettings

if TYPE_CHECKING:
    from ringfence.weak.planning.plan import Plan

TRAIN: Final = Experiment(
    "ringfence train",
    """Train a segmentation model on a prepared set (`ringfence prepare`) from boxes, without a single mask; the
    model is for `ringfence predict`. All settings follow from the set, as `ringfence plan PREPARED` says. CONFIG is
    a YAML file, or the name of a preset to begin from instead.""",
    """examples: `ringfence train PREPARED`; `ringfence train PREPARED --data.boxes boxes.csv --out runs/mine`;
    `ringfence train boxes-small --data.prepared PREPARED` (by a preset, for slices of 64×64);
    `--constraints.compactness {} --constraints.strips.width 3`;
    `--print_config > my.yaml` and then `ringfence train my.yaml`; after Ctrl-C, `--out THAT_FOLDER --resume`.""",
    TrainSettings,
    ("plan", "boxes", "boxes-small", "promise12", "promise12-small"),
    "train",
    "[PREPARED | CONFIG] [options]",
)


def run(arguments: Sequence[str]) -> str:
    """Train; where the model is, and what to do with it."""
    words = list(arguments)
    if words and not words[0].startswith("-"):
        words[:1] = _meant(words[0], words[1:])
    elif not words:
        raise ValueError("train on what? `ringfence train PREPARED`, the folder that `ringfence prepare` wrote")
    plans: list[Plan] = []
    settings, folder, resume = replace(TRAIN, tell=plans.append).parsed(words)
    with quick_start(settings.training.device, "ringfence train", compiles=settings.training.compile):
        for package in ("torchmetrics", "rich"):
            require(package, "ringfence train", "train")
        from ringfence.weak.experiments.train import train
        from ringfence.weak.networks.known import doubt
        from ringfence.weak.ranks.world import world_of_environment

    try:
        model = train(settings, folder, resume=resume, note="\n".join(map(str, plans))).model_file
    except KeyboardInterrupt:
        raise Interrupted(
            f"Every finished epoch is kept; go on with: ringfence train --out {quote(str(folder))} --resume"
        ) from None
    if not world_of_environment().first:
        raise SystemExit(0)  # rank 0 has said it
    own = settings.network.class_path
    trust = f" --trust {own}" if doubt(own, settings.network.init_args) else ""
    return (
        f"The model is {model}; every epoch is in {folder / 'metrics.csv'}.\n"
        f"Next: ringfence predict {quote(str(model))} IMAGES OUT{trust}"
    )


def _meant(word: str, others: Sequence[str]) -> list[str]:
    """What a first word without an option is: a prepared set, a preset, or a file of settings."""
    from ringfence.weak.experiments.presets import preset_names

    path = Path(word)
    named = any(other.partition("=")[0] == "--data.prepared" for other in others)
    if word in preset_names() and (named or not path.is_dir()):
        return ["--preset", word]
    if path.is_dir() or path.name == "manifest.json":
        return ["--data.prepared", str(path) if path.is_dir() else str(path.parent)]
    if path.is_file() or path.suffix in (".yaml", ".yml", ".json"):
        return ["--config", word]
    return ["--data.prepared" if len(path.parts) > 1 else "--preset", word]
