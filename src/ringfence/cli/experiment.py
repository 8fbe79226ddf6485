"""What `ringfence compare` and `ringfence train` share: presets, options and YAML, --out and --resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ringfence.extras import require
from ringfence.hints import hint, printable, shown
from ringfence.options import inside
from ringfence.weak.experiments.config_files import config_files, parse_config, read_config
from ringfence.weak.experiments.parsing import parse, settings_from, settings_parser
from ringfence.weak.experiments.presets import about_preset, from_preset, preset_file
from ringfence.weak.experiments.settings import PLANNED, ExperimentSettings
from ringfence.weak.training.methods import method_named

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from ringfence.weak.planning.plan import Plan

Kind = TypeVar("Kind", bound=ExperimentSettings)
CLASSES: Final = ("network", "optimiser", "schedule")
"""Groups with a class_path and its init_args."""
CONSTRAINTS: Final = "--constraints."
PLAN: Final = "plan"
"""In place of a preset: settings that follow from the set."""


@dataclass(frozen=True)
class Experiment(Generic[Kind]):
    """A command that trains.

    Attributes:
        prog: the command.
        description: what it does, for its help.
        epilog: examples, for its help.
        kind: its settings.
        presets: those it can begin from, the default first.
        folder: the beginning of the name of a folder in ``runs/``, where --out is not given.
        words: what follows the command's name, for the line of usage.
        tell: called with the plan, if there is one.
    """

    prog: str
    description: str
    epilog: str
    kind: type[Kind]
    presets: tuple[str, ...]
    folder: str
    words: str = "[options]"
    tell: Callable[[Plan], None] = lambda plan: None

    def parsed(self, arguments: Sequence[str]) -> tuple[Kind, Path, bool]:
        """The settings that the arguments give, where results go, and whether a run goes on."""
        require("yaml", self.prog, "train")
        try:
            return self._parsed(arguments)
        except ValueError as error:
            raise ValueError(printable(str(error))) from None  # it may quote what a file says

    def _parsed(self, arguments: Sequence[str]) -> tuple[Kind, Path, bool]:
        # The defaults of everything else depend on these, so they are looked for before the rest is parsed.
        register_methods(arguments)
        preset = str(given(arguments, "preset") or self.presets[0])
        if preset not in self.presets:
            preset_file(preset)  # says what there is, if there is none of that name
            raise ValueError(f"preset '{preset}' is not for {self.prog}; these are: {', '.join(self.presets)}")
        resume = str(given(arguments, "resume")).lower() == "true"
        if resume:
            defaults = self._begun(given(arguments, "out"))
        else:
            defaults = self._planned(arguments) if preset == PLAN else from_preset(self.kind, preset)
        options = self._options(defaults, arguments)
        if (options.preset, options.resume) != (preset, resume):
            raise ValueError(
                "preset and resume can be set on the command line or in the file of --config, not deeper"
            )
        if options.out == "":
            raise ValueError("--out needs the name of a folder")
        folder = Path(options.out or f"runs/{self.folder}-{datetime.now():%Y%m%d-%H%M%S}")
        return settings_from(self.kind, options), folder, resume

    def _options(self, defaults: Kind, arguments: Sequence[str]) -> Any:
        """All options, with defaults where the arguments say nothing."""
        for group in CLASSES:  # the arguments of one class are not those of another
            before = getattr(defaults, group)
            class_path = given(arguments, f"{group}.class_path")
            if class_path is not None and class_path != before.class_path:
                defaults = replace(defaults, **{group: replace(before, class_path=class_path, init_args={})})
        words = [
            "--resume=true" if one == "--resume" and after not in ("true", "false") else one
            for one, after in zip_longest(arguments, arguments[1:])
        ]
        words, changes = constraint_changes(words)
        if changes and not hasattr(defaults, "constraints"):
            raise ValueError(f"there is no option 'constraints.{next(iter(changes))}': the task's are its own")
        if changes and hasattr(defaults, "constraints"):
            words += ["--constraints", json.dumps(with_changes(_asked(arguments, defaults.constraints), changes))]
        asks = {"-h", "--help"} & set(words) and hasattr(defaults, "constraints")
        return parse(self._parser(defaults, constraints_in_words() if asks else ""), words)

    def _planned(self, arguments: Sequence[str]) -> Kind:
        """What options begin from by plan: for the set, the boxes and the device that they name."""
        begun = from_preset(self.kind, self.kind.preset)
        if {"-h", "--help"} & set(arguments):
            return begun
        words = [word for word in arguments if not word.startswith("--print_config")]  # which would end here
        # a plan has more constraints than the preset, and those may be left out, too
        known = begun.changed({"constraints": {name: {} for name in PLANNED} | getattr(begun, "constraints", {})})
        asked: Any = settings_from(self.kind, self._options(known, words))
        if not asked.data.prepared or not Path(asked.data.prepared).is_dir():
            return begun  # the training says so, or the settings are only looked at
        from ringfence.weak.experiments.planned import for_method, plan

        made = for_method(plan(asked.data, asked.training.device, asked.training.precision), asked.method_name)
        self.tell(made)
        return begun.changed(made.changes)

    def _parser(self, defaults: Kind, more: str = "") -> ArgumentParser:
        description, epilog = " ".join(self.description.split()), " ".join([self.epilog, more])
        parser = settings_parser(self.prog, description, defaults, epilog, self.words)
        parser.add_argument(
            "--preset",
            default=self.presets[0],
            metavar="|".join(self.presets),
            help="settings that the options below begin from. "
            + " ".join(f"{name}: {_about(name)}" for name in self.presets),
        )
        parser.add_argument(
            "--out", type=str | None, default=None, metavar="FOLDER", help="a new folder; default: one in runs/"
        )
        added = ", or with more methods or seeds" if hasattr(defaults, "seeds") else ""
        parser.add_argument(
            "--resume",
            type=bool,
            default=False,
            metavar="",
            help=f"go on with the run in --out, where it was interrupted{added}",
        )
        return parser

    def _begun(self, out: str | None) -> Kind:
        """The settings that the run in ``out`` was begun with."""
        if out is None:
            raise ValueError("--resume needs --out FOLDER: which run should go on?")
        from ringfence.weak.training.run_folder import CONFIG, stored_config

        stored = stored_config(Path(out))
        with inside(f"{Path(out) / CONFIG}: "):
            for method in _listed(stored.get("methods") or stored.get("method")):
                method_named(method)
        parser = settings_parser(self.prog, "", self.kind())
        try:
            return settings_from(self.kind, parse(parser, ["--config", str(Path(out) / CONFIG)]))
        except (ValueError, TypeError) as error:
            what = printable(str(error))
            raise ValueError(
                f"--resume: the run in {out} was begun with settings that this command does not know, by an older "
                f"ringfence perhaps: `ringfence report` still reads it; begin a new one with --out. ({what})"
            ) from None


def _about(preset: str) -> str:
    return "What `ringfence plan` derives from the set." if preset == PLAN else about_preset(preset)


def register_methods(arguments: Sequence[str]) -> None:
    """Import the methods that are named by their class paths: their settings become options."""
    named = [*_after(arguments, "--method"), *_after(arguments, "--methods")]
    for file in config_files(arguments):
        content = read_config(file)
        if isinstance(content, dict):
            named += [*_listed(content.get("method")), *_listed(content.get("methods"))]
    for name in named:
        if "." in name:
            method_named(name)


def constraints_in_words() -> str:
    """Every kind of constraint with its settings, for a help text: looking them up loads torch."""
    from ringfence.weak.constraints.registry import kinds, settings_of

    settings = {name: ", ".join(settings_of(kind)) for name, kind in kinds().items()}
    each = [f"{name} ({some})" if some else name for name, some in settings.items()]
    return f"Constraints and their settings: {', '.join(each)}; or a class of your own (docs/constraints.md)."


def constraint_changes(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The arguments without ``--constraints.NAME`` and ``--constraints.NAME.SETTING``, and what these say."""
    rest: list[str] = []
    changes: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith(CONSTRAINTS):
            rest.append(word)
            continue
        key, equals, text = word[len(CONSTRAINTS) :].partition("=")
        text = text if equals else next(words, "")
        if not text or text.startswith("--"):
            raise ValueError(f"{word} needs a value, such as 3, {{}} or null")
        name, _, setting = key.partition(".")
        value = parse_config(text, f"--constraints.{key}")
        if setting:
            changes[name] = _merged(changes.get(name) or {}, _nested(setting, value))
        else:
            changes[name] = value if isinstance(value, dict) else None
            if value is not None and not isinstance(value, dict):
                raise ValueError(f"--constraints.{name}: settings such as '{{width: 3}}', {{}} or null; got {text}")
    return rest, changes


def with_changes(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constraints with some of their settings changed, and more or fewer of them."""
    changed = dict(asked)
    for name, value in changes.items():
        if value is not None:
            changed[name] = _merged(changed.get(name) or {}, value)
        elif name in changed:
            del changed[name]
        else:
            raise ValueError(f"--constraints.{name}: there is none to leave out; {hint(name, changed)}")
    return changed


def _asked(arguments: Sequence[str], default: Mapping[str, Any]) -> Mapping[str, Any]:
    """The constraints before changes: those of --constraints or of a file, or else the default."""
    asked = given(arguments, "constraints")
    asked = parse_config(asked, "--constraints") if isinstance(asked, str) else asked
    if asked is not None and not isinstance(asked, Mapping):
        raise ValueError(f"constraints are settings by name, such as {{strips: {{width: 3}}}}; got {shown(asked)}")
    return default if asked is None else asked


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Both, and where both have settings by the same name those, too; the later wins."""
    both = {name: (before[name], after[name]) for name in after if name in before}
    inner = {name: _merged(*two) for name, two in both.items() if all(isinstance(one, Mapping) for one in two)}
    return {**before, **after, **inner}


def _nested(setting: str, value: Any) -> dict[str, Any]:
    first, _, rest = setting.partition(".")
    return {first: _nested(rest, value) if rest else value}


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
    for file in reversed(config_files(arguments)):
        content: Any = read_config(file)
        for key in name.split("."):
            content = content.get(key) if isinstance(content, dict) else None
        if content is not None:
            return content
    return None


def _after(arguments: Sequence[str], option: str) -> list[str]:
    """The values that follow an option."""
    values: list[str] = []
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            values.append(argument.partition("=")[2])
        elif argument == option:
            for value in arguments[place + 1 :]:
                if value.startswith("-"):
                    break
                values.append(value)
    return values


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [] if value is None else [str(value)]
