"""Presets: settings to begin from, in files that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

from ringfence.hints import nearest, one_line
from ringfence.weak.experiments.config_files import read_config
from ringfence.weak.experiments.parsing import parse, settings_from, settings_parser
from ringfence.weak.experiments.settings import ExperimentSettings

Settings = TypeVar("Settings", bound=ExperimentSettings)
BESIDE: Final = ("preset", "out", "resume")
"""What a command's file may say beside settings."""


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
        raise ValueError(f"there is no preset '{one_line(name)}'; {likely}There are: {', '.join(preset_names())}")
    return file


def from_preset(kind: type[Settings], name: str, changes: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a preset: ``from_preset(TrainSettings, "boxes", {"training.epochs": 10})``.

    Args:
        kind: TrainSettings, BoxCompareSettings or SyntheticSettings.
        name: of the preset.
        changes: other values, by their dotted names.
    """
    try:
        settings = _read(kind, preset_file(name), kind())
    except ValueError as error:
        if name in preset_names() and "there is no option" in str(error):
            raise ValueError(f"preset '{name}' is not for {kind.__name__}: {error}") from None
        raise
    return settings.changed(changes or {})


def from_file(kind: type[Settings], file: str | Path, changes: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a YAML file, as the command reads it: what it does not say is its preset's (``preset: NAME``).

    Args:
        kind: as for ``from_preset``.
        file: the file; also one that ``--print_config`` wrote.
        changes: other values, by their dotted names.
    """
    content = read_config(Path(file))
    named = content.get("preset") if isinstance(content, dict) else None
    return _read(kind, Path(file), from_preset(kind, str(named or kind.preset))).changed(changes or {})


def _read(kind: type[Settings], file: Path, defaults: Settings) -> Settings:
    parser = settings_parser("settings", "", defaults)
    for name in BESIDE:
        parser.add_argument(f"--{name}", type=Any, default=None)
    return settings_from(kind, parse(parser, ["--config", str(file)]))


def _folder() -> Path:
    return Path(str(files("ringfence.weak.presets")))
