"""`ringfence compare TASK`: every method on one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli import Interrupted
from ringfence.cli.report import written_report
from ringfence.cli.settings import parse, settings_from, settings_parser
from ringfence.extras import require
from ringfence.weak.settings import SCALES, CompareSettings

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

HELP = """usage: ringfence compare TASK [options]

Train every method on one task, alike, and compare them.

tasks:
  synthetic  find the darker of two discs from its size and centroid alone (the paper's first experiment)

ringfence compare TASK --help shows a task's options."""

DESCRIPTION = """Train five methods and full supervision to find the darker of two discs, given limits on its size
and centroid and not a single labelled pixel; print Dice, satisfaction and stability beside the paper's numbers, and
draw the curves."""

EPILOG = """examples: `ringfence compare synthetic` (minutes on two CPU cores);
`ringfence compare synthetic --scale paper` (the paper's size, for a GPU);
`--seeds 0 1 2 --methods log_barrier penalty`; `--log_barrier.t 5`;
`--print_config > my.yaml` and then `--config my.yaml`; after Ctrl-C, `--out THAT_FOLDER --resume`."""


def run(arguments: Sequence[str]) -> str:
    """Train, report; the table and the files' names."""
    if not arguments or arguments[0] in ("-h", "--help"):
        if not arguments:
            raise ValueError("which task? `ringfence compare synthetic` is the paper's first experiment")
        return HELP
    if arguments[0] != "synthetic":
        raise ValueError(f"there is no task '{arguments[0]}'; there is: synthetic")
    return _synthetic(list(arguments[1:]))


def _synthetic(arguments: list[str]) -> str:
    require("yaml", "ringfence compare", "train")
    scale = _given(arguments, "scale") or "small"
    if scale not in SCALES:
        raise ValueError(f"scale: there is no scale '{scale}'; there are: {', '.join(SCALES)}")
    defaults = SCALES[scale]
    out, resume = _given(arguments, "out"), str(_given(arguments, "resume")).lower() == "true"
    if resume:
        defaults = _begun(out)
    parser = _parser(defaults, scale)
    options = parse(parser, [argument if argument != "--resume" else "--resume=true" for argument in arguments])
    settings = settings_from(CompareSettings, options)
    if settings.network.class_path != defaults.network.class_path and settings.network.init_args == (
        defaults.network.init_args
    ):  # another network's arguments
        settings = replace(settings, network=replace(settings.network, init_args={}))
    folder = Path(options.out or f"runs/synthetic-{scale}-{datetime.now():%Y%m%d-%H%M%S}")
    return _compare(settings, folder, resume)


def _compare(settings: CompareSettings, folder: Path, resume: bool) -> str:
    for package in ("pytorch_lightning", "torchmetrics", "monai", "rich", "matplotlib"):
        require(package, "ringfence compare", "train")
    from ringfence.weak.compare import compare_synthetic

    try:
        compare_synthetic(settings, folder, resume=resume)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Every finished epoch is kept; go on with: ringfence compare synthetic --out {folder} --resume"
        ) from None
    return written_report(folder)


def _parser(defaults: CompareSettings, scale: str) -> ArgumentParser:
    parser = settings_parser("ringfence compare synthetic", " ".join(DESCRIPTION.split()), defaults, EPILOG)
    parser.add_argument(
        "--scale", default=scale, metavar="|".join(SCALES), help="which settings the options below begin from"
    )
    parser.add_argument(
        "--out", type=str | None, default=None, metavar="FOLDER", help="a new folder; one in runs/ unless given"
    )
    parser.add_argument(
        "--resume", type=bool, default=False, metavar="", help="go on with the interrupted run in --out"
    )
    return parser


def _given(arguments: Sequence[str], name: str) -> str | None:
    """An option's value before everything else is known: the defaults of the rest depend on it.

    The command line is asked first, then the YAML files.
    """
    value: str | None = None
    for place, argument in enumerate(arguments):
        if argument == f"--{name}":
            following = arguments[place + 1 : place + 2]
            value = "true" if name == "resume" else next(iter(following), None)
        elif argument.startswith(f"--{name}="):
            value = argument.partition("=")[2]
    if value is None and name != "config":
        file = _given(arguments, "config")
        value = None if file is None else _from_yaml(Path(file), name)
    return value


def _from_yaml(file: Path, name: str) -> str | None:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileNotFoundError(f"--config {file}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {file} is not YAML: {' '.join(str(error).split())}") from None
    value = content.get(name) if isinstance(content, dict) else None
    return None if value is None else str(value)


def _begun(out: str | None) -> CompareSettings:
    """The settings that the run in ``out`` was begun with."""
    if out is None:
        raise ValueError("--resume needs --out FOLDER: which run should go on?")
    from ringfence.weak.run_folder import CONFIG, stored_config

    parser = settings_parser("ringfence compare synthetic", "", SCALES["small"])
    stored_config(Path(out))
    return settings_from(CompareSettings, parse(parser, ["--config", str(Path(out) / CONFIG)]))
