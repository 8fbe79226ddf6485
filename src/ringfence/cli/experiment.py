"""What `ringfence compare` and `ringfence train` share: settings by options and YAML, --out and --resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ringfence.cli.settings import parse, settings_from, settings_parser
from ringfence.extras import require
from ringfence.weak.training.settings import ExperimentSettings, NetworkSettings

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

Kind = TypeVar("Kind", bound=ExperimentSettings)


@dataclass(frozen=True)
class Experiment(Generic[Kind]):
    """A command that trains.

    Attributes:
        prog: the command.
        description: what it does, for its help.
        epilog: examples, for its help.
        defaults: its settings where nothing is given.
        folder: the beginning of the name of a folder in ``runs/``, where --out is not given.
        scales: other settings to begin from, by the name that --scale takes.
        words: what follows the command's name, for the line of usage.
    """

    prog: str
    description: str
    epilog: str
    defaults: Kind
    folder: str
    scales: dict[str, Kind] | None = None
    words: str = "[options]"

    def parsed(self, arguments: Sequence[str]) -> tuple[Kind, Path, bool]:
        """The settings that the arguments give, where results go, and whether a run goes on."""
        require("yaml", self.prog, "train")
        # The defaults of everything else depend on these, so they are looked for before the rest is parsed.
        scale = str(given(arguments, "scale") or next(iter(self.scales))) if self.scales else None
        if self.scales and scale not in self.scales:
            raise ValueError(f"scale: there is no scale '{scale}'; there are: {', '.join(self.scales)}")
        resume = str(given(arguments, "resume")).lower() == "true"
        defaults = self.scales[scale] if self.scales and scale else self.defaults
        if resume:
            defaults = self._begun(given(arguments, "out"))
        class_path = given(arguments, "network.class_path")
        if class_path is not None and class_path != defaults.network.class_path:
            # the arguments are another network's
            defaults = replace(defaults, network=NetworkSettings(str(class_path), {}))
        words = [
            "--resume=true" if one == "--resume" and after not in ("true", "false") else one
            for one, after in zip_longest(arguments, arguments[1:])
        ]
        options = parse(self._parser(defaults), words)
        if (getattr(options, "scale", None), options.resume) != (scale, resume):
            raise ValueError(
                "scale and resume can be set on the command line or in the file of --config, not deeper"
            )
        if options.out == "":
            raise ValueError("--out needs the name of a folder")
        name = f"{self.folder}-{scale}" if scale else self.folder
        folder = Path(options.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
        return settings_from(type(self.defaults), options), folder, resume

    def _parser(self, defaults: Kind) -> ArgumentParser:
        parser = settings_parser(self.prog, " ".join(self.description.split()), defaults, self.epilog, self.words)
        if self.scales:
            parser.add_argument(
                "--scale",
                default=next(iter(self.scales)),
                metavar="|".join(self.scales),
                help="which settings the options below begin from",
            )
        parser.add_argument(
            "--out",
            type=str | None,
            default=None,
            metavar="FOLDER",
            help="a new folder; one in runs/ unless given",
        )
        more = ", or with more methods or seeds" if hasattr(defaults, "seeds") else ""
        parser.add_argument(
            "--resume",
            type=bool,
            default=False,
            metavar="",
            help=f"go on with the run in --out, where it was interrupted{more}",
        )
        return parser

    def _begun(self, out: str | None) -> Kind:
        """The settings that the run in ``out`` was begun with."""
        if out is None:
            raise ValueError("--resume needs --out FOLDER: which run should go on?")
        from ringfence.weak.training.run_folder import CONFIG, stored_config

        stored_config(Path(out))
        parser = settings_parser(self.prog, "", self.defaults)
        return settings_from(type(self.defaults), parse(parser, ["--config", str(Path(out) / CONFIG)]))


def given(arguments: Sequence[str], name: str) -> Any:
    """An option's value before the rest is parsed: the last on the command line, or in the last file with it."""
    value = None
    for place, argument in enumerate(arguments):
        if argument == f"--{name}":
            after = next(iter(arguments[place + 1 : place + 2]), None)
            value = "true" if name == "resume" and after not in ("true", "false") else after
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
