"""`ringfence compare TASK`: every method on one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli import Interrupted
from ringfence.cli.report import written_report
from ringfence.cli.settings import parse, settings_from, settings_parser
from ringfence.extras import require
from ringfence.weak.settings import SCALES, NetworkSettings, SyntheticSettings

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
    # The defaults of everything else depend on these three, so they are looked for before the rest is parsed.
    scale = str(_given(arguments, "scale") or "small")
    if scale not in SCALES:
        raise ValueError(f"scale: there is no scale '{scale}'; there are: {', '.join(SCALES)}")
    resume = str(_given(arguments, "resume")).lower() == "true"
    defaults = _begun(_given(arguments, "out")) if resume else SCALES[scale]
    class_path = _given(arguments, "network.class_path")
    if class_path is not None and class_path != defaults.network.class_path:  # the arguments are another network's
        defaults = replace(defaults, network=NetworkSettings(str(class_path), {}))
    options = parse(_parser(defaults), [one if one != "--resume" else "--resume=true" for one in arguments])
    if (options.scale, options.resume) != (scale, resume):
        raise ValueError("scale and resume can be set on the command line or in the file of --config, not deeper")
    settings = settings_from(SyntheticSettings, options)
    if options.out == "":
        raise ValueError("--out needs the name of a folder")
    folder = Path(options.out or f"runs/synthetic-{scale}-{datetime.now():%Y%m%d-%H%M%S}")
    return _compare(settings, folder, resume)


def _compare(settings: SyntheticSettings, folder: Path, resume: bool) -> str:
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


def _parser(defaults: SyntheticSettings) -> ArgumentParser:
    parser = settings_parser("ringfence compare synthetic", " ".join(DESCRIPTION.split()), defaults, EPILOG)
    parser.add_argument(
        "--scale", default="small", metavar="|".join(SCALES), help="which settings the options below begin from"
    )
    parser.add_argument(
        "--out", type=str | None, default=None, metavar="FOLDER", help="a new folder; one in runs/ unless given"
    )
    parser.add_argument(
        "--resume", type=bool, default=False, metavar="", help="go on with the interrupted run in --out"
    )
    return parser


def _given(arguments: Sequence[str], name: str) -> Any:
    """An option's value before the rest is parsed: the last on the command line, or in the last file with it."""
    value = None
    for place, argument in enumerate(arguments):
        if argument == f"--{name}":
            value = "true" if name == "resume" else next(iter(arguments[place + 1 : place + 2]), None)
        elif argument.startswith(f"--{name}="):
            value = argument.partition("=")[2]
    if value is not None:
        return value
    for file in reversed(_files(arguments)):
        content: Any = _read_yaml(file)
        for key in name.split("."):
            content = content.get(key) if isinstance(content, dict) else None
        if content is not None:
            return content
    return None


def _files(arguments: Sequence[str]) -> list[Path]:
    """The files of every --config."""
    files = [argument.partition("=")[2] for argument in arguments if argument.startswith("--config=")]
    files += [after for before, after in pairwise(arguments) if before == "--config"]
    return [Path(file) for file in files]


def _read_yaml(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileNotFoundError(f"--config {file}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {file} is not YAML: {' '.join(str(error).split())}") from None


def _begun(out: str | None) -> SyntheticSettings:
    """The settings that the run in ``out`` was begun with."""
    if out is None:
        raise ValueError("--resume needs --out FOLDER: which run should go on?")
    from ringfence.weak.run_folder import CONFIG, stored_config

    parser = settings_parser("ringfence compare synthetic", "", SCALES["small"])
    stored_config(Path(out))
    return settings_from(SyntheticSettings, parse(parser, ["--config", str(Path(out) / CONFIG)]))
