"""Presets: settings to begin from, in files that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from ringfence.hints import nearest
from ringfence.weak.experiments.parsing import parse, settings_from, settings_parser

Settings = TypeVar("Settings")


def preset_names() -> list[str]:
    """Every preset there is."""
    return sorted(file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.suffix == ".yaml")


def about_preset(name: str) -> str:
    """What a preset is for, in a line."""
    return preset_file(name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def preset_file(name: str) -> Path:
    """The file of a preset."""
    file = _folder() / f"{name}.yaml"
    if name not in preset_names():
        near = nearest(name, preset_names())
        likely = f"did you mean '{near}'? " if near else ""
        raise ValueError(f"there is no preset '{name}'; {likely}There are: {', '.join(preset_names())}")
    return file


def from_preset(kind: type[Settings], name: str) -> Settings:
    """Settings of a preset, as ``from_preset(TrainSettings, "boxes")``; what it does not say has its default."""
    return from_file(kind, preset_file(name))


def from_file(kind: type[Settings], file: str | Path) -> Settings:
    """Settings of a YAML file; what it does not say has its default."""
    parser = settings_parser("settings", "", kind())
    return settings_from(kind, parse(parser, ["--config", str(file)]))


def _folder() -> Path:
    return Path(str(files("ringfence.weak.presets")))
