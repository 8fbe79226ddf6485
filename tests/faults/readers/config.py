"""A YAML file of settings, as the commands' own --config reads it; what is accepted must be what the file says."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any, ClassVar

import yaml

from faults.mutations.trees import mutate_tree, to_yaml
from faults.reader import Reader, expect
from ringfence.cli import experiment
from ringfence.cli.compare import SYNTHETIC
from ringfence.cli.train import TRAIN
from ringfence.weak import make_constraints
from ringfence.weak.experiments import presets
from ringfence.weak.experiments.parsing import as_config

TRAINED = {
    "network": {
        "class_path": "monai.networks.nets.BasicUNet",
        "init_args": {"features": [8, 8, 16, 32, 64, 8], "act": "relu"},
    },
    "training": {"epochs": 3, "batch_size": 4, "lr": 0.01, "device": "cpu"},
    "data": {"prepared": "set", "margin": 1},
    "constraints": {"strips": {"width": 2}, "outside": {}},
    "log_barrier": {"t": 0.3, "mu": None, "final_t": 2.0, "weights": {"strips": 8.0}},
    "augment": {"flip": ["left-right"], "shift": 0.1},
    "method": "log_barrier",
    "seed": 3,
}
COMPARED = {
    "preset": "synthetic-small",
    "data": {"size": 32, "train": 8, "validation": 4},
    "training": {"epochs": 2, "prior": 0.01},
    "methods": ["penalty", "log_barrier"],
    "seeds": [0, 1],
    "penalty": {"unit": "relative", "strength": 1.0},
}
BESIDE = ("preset", "out", "resume", "config")


def remember_parsers() -> None:
    """Presets and parsers are made once: that takes ten times as long as reading a file."""
    if hasattr(experiment.from_preset, "cache_info"):
        return
    made: dict[str, Any] = {}
    parser_of, begun_by = experiment.Experiment._parser, experiment.settings_parser

    def own(self: Any, defaults: Any, more: str = "") -> Any:
        key = repr((self.prog, defaults, more))
        if len(made) > 20:
            made.clear()
        return made[key] if key in made else made.setdefault(key, parser_of(self, defaults, more))

    def begun(prog: str, description: str, defaults: Any, *others: Any) -> Any:
        if description or others:
            return begun_by(prog, description, defaults, *others)
        key = repr((prog, defaults))
        return made[key] if key in made else made.setdefault(key, begun_by(prog, description, defaults))

    experiment.Experiment._parser, experiment.settings_parser = own, begun
    experiment.from_preset = functools.cache(presets.from_preset)


class Config(Reader):
    """--config."""

    name: ClassVar[str] = "config-yaml"
    count: ClassVar[int] = 100_000
    named: ClassVar[bool] = False
    trusted: ClassVar[bool] = True

    def prepare(self, folder: Path) -> None:
        remember_parsers()
        self.inputs = [(TRAINED, "train.yaml"), (COMPARED, "compare.yaml")]

    @property
    def valid(self) -> int:
        return len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        tree, name = self.inputs[number] if number < self.valid else rng.choice(self.inputs)
        path = folder / name
        path.write_bytes(
            yaml.safe_dump(tree).encode() if number < self.valid else to_yaml(rng, mutate_tree(rng, tree))
        )
        return path

    def read(self, path: Path) -> Any:
        command = TRAIN if path.name == "train.yaml" else SYNTHETIC
        settings = command.parsed(["--config", str(path)])[0]
        if command is TRAIN:
            make_constraints(settings.constraints)  # as the training does, before anything else
        return settings

    def check(self, path: Path, found: Any) -> str | None:
        said, config = yaml.safe_load(path.read_text("utf-8-sig")), as_config(found)
        for name, value in _flat(said or {}).items():
            if name[0] in BESIDE or (name[0] in ("network", "optimiser", "schedule") and "init_args" in name):
                continue
            now: Any = config
            for key in name:
                now = now.get(key) if isinstance(now, dict) else now
            plain = list(now) if isinstance(now, tuple) else now
            expect(
                same_value(plain, value) or value == {} or (value is None and not plain),
                f"{'.'.join(map(str, name))} is {value!r} in the file, and {plain!r} is used",
            )
            expect(
                not isinstance(value, bool) or isinstance(plain, bool),
                f"{name} is {value!r} in the file, and {plain!r} is used",
            )
        return None


def _flat(tree: Any, prefix: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    if not isinstance(tree, dict) or not tree:
        return {prefix: tree} if prefix else {}
    return {name: value for key, one in tree.items() for name, value in _flat(one, (*prefix, key)).items()}


def _plain(text: str) -> Any:
    """What a text stands for where no text is wanted; unlike YAML 1.1, jsonargparse takes 1e3 for a number."""
    try:
        return float(text)
    except ValueError:
        return yaml.safe_load(text)


def same_value(used: Any, said: Any) -> bool:
    """Whether they are equal, also where a value is written as text, or a whole number is read as a float."""
    if isinstance(said, str) and not isinstance(used, str):
        said = _plain(said)
    if isinstance(used, list) and isinstance(said, list) and len(used) == len(said):
        return all(same_value(one, other) for one, other in zip(used, said, strict=True))
    if isinstance(used, float) and type(said) is int:
        said = float(said)
    return bool(used == said)
