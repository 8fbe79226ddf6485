"""A settings dataclass from options and YAML files, by jsonargparse; typos get the nearest key.

Fields of dataclasses are groups: ``training.lr``. A field marked ``flat`` is a dictionary of dataclasses whose keys
are groups themselves: ``log_barrier.t``. Constraints are a dictionary of plain settings.
"""

from __future__ import annotations

import argparse
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from ringfence.extras import require
from ringfence.hints import nearest, shown
from ringfence.options import inside, words_of
from ringfence.weak.experiments.config_files import check_word, config_files, read_config
from ringfence.weak.experiments.settings import RENAMED

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Settings = TypeVar("Settings")
LONGEST: Final = 400
"""Characters of a message of jsonargparse's that are shown."""


def settings_parser(
    prog: str, description: str, defaults: Any, epilog: str | None = None, words: str = "[options]"
) -> ArgumentParser:
    """A parser with an option for every field of ``defaults``, a dataclass of dataclasses; dots go a level down.

    Args:
        prog: the command's name.
        description: what it does.
        defaults: an instance: its values are the defaults.
        epilog: below the options.
        words: what follows the command's name, for the line of usage.
    """
    require("jsonargparse", prog, "train")
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        exit_on_error=False,
        allow_abbrev=False,
        usage=f"{prog} {words}",
        formatter_class=_Formatter,
    )
    parser.add_argument("--config", action="config", help="a YAML file with any of these options")
    _add_fields(parser, parser, defaults, "")
    return parser


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Defaults after the help, unless the help says what happens by default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if "default:" in (action.help or "") else super()._get_help_string(action)


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """Parse, or raise a ValueError with one message that says what is wrong and what may have been meant."""
    for file in config_files(arguments):
        read_config(file)
    for word in arguments:
        option, equals, value = word.partition("=")
        check_word(*((value, option) if equals and option.startswith("--") else (word, shown(word))))
    try:
        found = parser.parse_args(list(arguments))
    except Exception as error:  # jsonargparse's own, YAML's, or what a value of the user's makes Python say
        raise ValueError(explained(str(error) or type(error).__name__, known_options(parser))) from None
    for file in config_files(arguments):
        _check_names(read_config(file), known_options(parser))
    return found


def _check_names(content: Any, known: Sequence[str], prefix: str = "") -> None:
    """Refuse names that nobody knows; jsonargparse passes over those that hold nothing."""
    for name, value in content.items() if isinstance(content, Mapping) else ():
        full = f"{prefix}{name}"
        if full in known:
            if any(option.startswith(f"{full}.") for option in known):
                _check_names(value, known, f"{full}.")
        else:
            raise ValueError(explained(f"Unrecognized arguments: --{full}", known))


def settings_from(kind: type[Settings], namespace: Any, prefix: str = "") -> Settings:
    """The dataclass whose fields ``namespace`` has; what YAML can say but a field cannot hold is refused."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.metadata.get("flat"):
            values[field.name] = _groups(namespace)
            continue
        name, hint, value = f"{prefix}{field.name}", hints[field.name], getattr(namespace, field.name)
        if is_dataclass(hint):
            if value is None or isinstance(value, (str, int, float, list)):
                raise ValueError(
                    f"{name} has settings of its own, as in {name}.{fields(hint)[0].name}; got {value}"
                )
            value = settings_from(hint, value, f"{name}.")  # type: ignore[arg-type]
        elif value == ["[]"]:  # as one would write it in a file
            value = []
        elif value is not None and _list_of(hint) is not None and not isinstance(value, list):
            raise ValueError(f"{name} is a list, as in [{value}]; got {value}")
        elif value is None and type(None) not in get_args(hint):
            raise ValueError(f"{name} must have a value; leave the line out for the default")
        values[field.name] = value if is_dataclass(value) else _without_namespaces(value)
    return kind(**values)


def _without_namespaces(value: Any) -> Any:
    """Plain values: jsonargparse makes namespaces of dictionaries that name a class which can be imported."""
    if isinstance(value, Mapping):
        return {name: _without_namespaces(one) for name, one in value.items()}
    return value.as_dict() if hasattr(value, "as_dict") else value


def _groups(namespace: Any) -> dict[str, Any]:
    """The settings of every method, from its group."""
    from ringfence.weak.training.methods import METHODS

    found = {}
    for name, kind in METHODS.items():
        group = getattr(namespace, name, None)
        if group is None or isinstance(group, (str, int, float, list)):
            raise ValueError(f"{name} has settings of its own, as in {name}.{fields(kind)[0].name}; got {group}")
        with inside(f"{name}: "):
            found[name] = settings_from(kind, group, f"{name}.")
    return found


def as_config(settings: Any) -> dict[str, Any]:
    """Settings as plain values, as their YAML file has them: ``settings_from`` reads them back."""
    config: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.metadata.get("flat"):
            config |= {name: asdict(one) for name, one in value.items()}
        elif field.name == "constraints":
            config["constraints"] = {name: _plain(one) for name, one in value.items()}
        else:
            config[field.name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return config


def _plain(constraint: Any) -> Any:
    """A constraint's settings; those of an object are its class path and its arguments."""
    if constraint is None or isinstance(constraint, Mapping):
        return None if constraint is None else dict(constraint)
    from ringfence.weak.constraints.registry import settings_of

    kind = type(constraint)
    arguments = {name: getattr(constraint, name, None) for name in settings_of(kind)}
    arguments = {name: list(one) if isinstance(one, tuple) else one for name, one in arguments.items()}
    return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": arguments}


def explained(message: str, known: Sequence[str]) -> str:
    """jsonargparse's message in a reader's words, with the nearest known option where a name is not known."""
    unknown = (
        re.search(r"[Uu]nrecognized arguments: --([\w.-]+)", message)
        or re.search(r"Group '(?P<group>[\w.]+)' does not accept option '(?P<key>[\w.]+)'", message)
        or re.search(r"Option '([\w.]+)' is not accepted", message)
    )
    if unknown:
        name = ".".join(unknown.groups())
        for old in (name, name.partition(".")[0]):
            if old in RENAMED:
                return f"there is no option '{name}' any more: {RENAMED[old]}"
        if name.partition(".")[0] in ("refine", "refinement") and "refine" not in known:  # a plan's file has it
            return f"there is no option '{name}' here: `ringfence train` alone refines; leave it out"
        near = nearest(name.replace("-", "_"), known, 0.5)
        if not near:  # perhaps the right word at another level
            same = [option for option in known if option.rpartition(".")[2] == name.rpartition(".")[2]]
            near = same[0] if same else None
        hint = f"did you mean '{near}'?" if near else "--help lists what there is."
        return f"there is no option '{name}'; {hint}"
    if "is not iterable" in message or "item assignment" in message:  # one value where a list belongs
        return "in a file of settings, methods, seeds, data.patch and augment.flip must be lists: write [it]"
    if message.startswith("Unexpected config"):
        return "the file of --config holds no settings: a name with nothing below it, or no names at all"
    wrong = re.search(r'Parser key "([\w.]+)"[^:]*:\s*(.*)', message, re.DOTALL)
    if wrong:
        reason = re.sub(r"<class '(\w+)'>", r"\1", " ".join(wrong[2].split()))
        reason = re.sub(r"typing\.Literal\[(.*?)\]", _one_of, reason).replace("Expected a ", "expected ")
        either = re.search(r"Union subtypes Subtypes: \[(.*?)\].* Given value: (.*)", reason)
        if either:
            kinds = either[1].replace("NoneType", "null").split(", ")
            reason = f"expected {' or '.join(kinds)}. Got value: {either[2]}"
        return f"{wrong[1]}: {_short(reason)}"
    return _short(message)


def _one_of(words: re.Match[str]) -> str:
    """Each word once, as one writes it."""
    return "one of " + ", ".join(dict.fromkeys(re.findall(r"[^\s',]+", words[1])))


def _short(message: str) -> str:
    """One line, and not all of a value that goes on and on."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def known_options(parser: ArgumentParser) -> list[str]:
    """Every option's dotted name, and every group's."""
    names = [text[2:] for action in parser._actions for text in action.option_strings if text.startswith("--")]
    return [*names, *sorted({name.rpartition(".")[0] for name in names if "." in name})]


def _add_fields(parser: ArgumentParser, group: Any, defaults: Any, prefix: str) -> None:
    hints = get_type_hints(type(defaults))
    for field in sorted(fields(defaults), key=lambda one: one.name != "data"):  # what is needed comes first
        value, kind = getattr(defaults, field.name), hints[field.name]
        if field.metadata.get("flat"):
            for name, group_of in value.items():
                _add_fields(parser, parser.add_argument_group(_title(group_of)), group_of, f"{name}.")
            continue
        if is_dataclass(value):
            inner = parser.add_argument_group(_title(value))
            _add_fields(parser, inner, value, f"{prefix}{field.name}.")
            continue
        options: dict[str, Any] = {"type": kind, "default": value, "help": field.metadata.get("help", "")}
        listed = _list_of(kind)
        if listed is not None:  # `--seeds 0 1 2` on the command line, a list in YAML
            options |= {"type": listed, "nargs": "+"}
        if _shown(kind):
            options["metavar"] = _shown(kind)
        words = words_of(kind)
        if any(word.isdigit() for word in words):  # a file has `precision: 32`, and YAML makes a number of it
            both = words + tuple(int(word) for word in words if word.isdigit())
            options |= {"type": Literal[both], "metavar": f"{{{','.join(words)}}}"}
        group.add_argument(f"--{prefix}{field.name}", **options)


def _list_of(kind: Any) -> Any:
    """What a list, or a list that may be left out, is a list of; None for everything else."""
    for one in get_args(kind) if get_origin(kind) is types.UnionType else (kind,):
        if get_origin(one) is list:
            return get_args(one)[0]
    return None


def _title(settings: Any) -> str:
    return (type(settings).__doc__ or "").splitlines()[0].rstrip(".")


def _shown(kind: Any) -> str | None:
    """What stands for the value in the help; None lets jsonargparse show the choices."""
    names = {int: "N", float: "X", str: "NAME", bool: "true|false"}
    if _list_of(kind) is not None:
        return names.get(_list_of(kind))
    if get_origin(kind) is types.UnionType:
        return names.get(get_args(kind)[0])
    if get_origin(kind) is dict:
        return "KEY: VALUE"
    return names.get(kind)
