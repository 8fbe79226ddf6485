"""Records of trainings: what a script of this folder writes as JSON, and the table in Markdown that is made of it.

A record holds its command, seed and environment beside what was measured. Its table states the settings that most
of the trainings share once, above (the base); a row has only what differs from them. A method's own settings are
compared among its own trainings, since they do nothing for the others.

Tables need the standard library alone: they are made anew without anything that trains.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Record = dict[str, Any]
Settings = dict[str, Any]
DEFAULT: Final = object()
"""In place of a value: what the setting is if nobody sets it."""


@dataclass(frozen=True)
class Training:
    """A training as a row of a table.

    Attributes:
        name: of the variant; empty where the settings say it all.
        method: how it was trained.
        settings: by dotted name; those that begin with a method's name are that method's own.
        cells: what was measured, as it is shown.
    """

    name: str
    method: str
    settings: Settings
    cells: tuple[str, ...]


def origin(record: Record, remark: str = "") -> str:
    """The last line of a table: what wrote it, and where; a remark follows the commit."""
    facts = record["environment"]
    where = facts["cpu"] if facts["gpu"] == "none" else facts["gpu"]
    return f"`{record['command']}`, torch {facts['torch']}, {where}, commit {short(facts['commit'])}{remark}."


def short(commit: str) -> str:
    """Seven digits of a commit, and whether files were changed since."""
    digits, *more = commit.split(" ", 1)
    return " ".join([digits[:7], *more])


def kept(file: Path, record: Record, same: str) -> list[Record]:
    """Trainings of a record that is there, to go on with; those that name no commit are of that record's own.

    Args:
        file: of the record, in JSON.
        record: the one that takes its place.
        same: what both must say alike, by its name.
    """
    if not file.exists():
        return []
    before = json.loads(file.read_text(encoding="utf-8"))
    if before.get(same, record[same]) != record[same]:
        raise SystemExit(f"{file} has {same} {before[same]}, not {record[same]}: choose another --out")
    return [{"commit": before["environment"]["commit"]} | one for one in before["trainings"]]


def before_refinement(trainings: Iterable[Record]) -> list[Record]:
    """Those that have a second network, with the Dice of their first one."""
    return [one | {"dice": one["rounds"][0]["dice"]} for one in trainings if len(one.get("rounds") or ()) > 1]


def write(out: Path, record: Record) -> None:
    """Write the record to OUT.json and its table to OUT.md."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def rewrite(records: Iterable[Path]) -> None:
    """Make the tables of these JSON files anew; the files themselves stay as they are."""
    for file in records:
        record = json.loads(file.read_text(encoding="utf-8"))
        file.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def joined(parts: list[Record], names: list[str]) -> Record:
    """One record of several, in the plan's order; each variant says which commit it was trained with.

    Args:
        parts: of the same command, seed, and machine.
        names: of the plan's variants.
    """
    first = parts[0]
    for part in parts[1:]:
        facts = {key: (value, part["environment"].get(key)) for key, value in first["environment"].items()}
        facts |= {key: (first[key], part[key]) for key in ("command", "seed")}
        apart = {key: values for key, values in facts.items() if values[0] != values[1] and key != "commit"}
        if apart:
            raise SystemExit(f"these records are not of one kind: {apart}")
    variants = [{"commit": part["environment"]["commit"]} | one for part in parts for one in part["variants"]]
    trained = [one["name"] for one in variants]
    if len(set(trained)) < len(trained):
        raise SystemExit("a variant is in two of these records: leave one of them out")
    if set(trained) != set(names):
        raise SystemExit(f"plan and records differ in {', '.join(sorted(set(trained) ^ set(names)))}")
    return first | {"variants": sorted(variants, key=lambda one: names.index(one["name"]))}


# The table of each kind of record


def as_markdown(record: Record) -> str:
    """The table of a record: of variants (tune_promise12), trainings (tune_synthetic) or an ablation."""
    if "variants" in record:
        lines = _variants(record)
    elif "trainings" in record:
        lines = _trainings(record)
    else:
        lines = _ablation(record)
    return "\n".join([*lines, "", f"{provenance(record)}."]) + "\n"


def _variants(record: Record) -> Iterator[str]:
    trained = [
        Training(
            one["name"],
            one["method"],
            one["settings"],
            (f"{one['dice']:.3f} ({one['dice_sd']:.3f})", f"{one['best_epoch']:.3f}", f"{one['satisfaction']:.1%}"),
        )
        for one in record["variants"]
    ]
    base = base_of(trained)
    yield from _base_lines(base, "the defaults at the commit below")
    yield from _table(("3D DSC, last fifth (sd)", "best epoch", "satisfaction"), trained, base)


def _trainings(record: Record) -> Iterator[str]:
    best: dict[str, float] = {}
    for one in record["trainings"]:
        best[one["method"]] = max(best.get(one["method"], 0.0), one["dice"])
    trained = []
    for one in record["trainings"]:
        method, settings = one["method"], record["settings"][one["method"]] | one["setting"]
        dice = f"{one['dice']:.3f}"
        dice = f"**{dice}**" if one["dice"] == best[method] else dice
        own = {f"{method}.{name}": value for name, value in settings.items()}
        trained.append(Training("", method, own, (dice, f"{one['satisfaction']:.1%}")))
    base = base_of(trained)
    epochs = record["settings"]["training"]["epochs"]
    yield from _base_lines(base, f"data, network and training as `settings` of the JSON file ({epochs} epochs)")
    yield from _table(("DSC", "satisfaction"), trained, base)


def _ablation(record: Record) -> Iterator[str]:
    rows: dict[str, dict[str, list[float]]] = record["dice_by_seed"]
    base, methods = next(iter(rows.items()))
    yield f"Base: the small scale, {base}. DSC of the last epoch: mean (each seed)."
    yield ""
    yield from _header(("difference from the base", *methods))
    for name, found in rows.items():
        cells = [f"{statistics.fmean(one):.3f} ({', '.join(f'{x:.3f}' for x in one)})" for one in found.values()]
        yield _row(("–" if name == base else name, *cells))


def provenance(record: Record) -> str:
    """Command, seed, versions, hardware and commit, in a line."""
    facts = record["environment"]
    commits: dict[str, list[str]] = {}
    for one in record.get("variants", []):
        commits.setdefault(one.get("commit", facts["commit"]), []).append(one["name"])
    if len(commits) > 1:
        trained = "; ".join(f"commit {commit}: {', '.join(names)}" for commit, names in commits.items())
    else:
        trained = f"commit: {next(iter(commits), facts['commit'])}"
    told = "" if "--seed" in record["command"] else f"seed {record['seed']}, "
    machine = facts["cpu"] if facts["gpu"] == "none" else facts["gpu"]
    return f"Written by `{record['command']}`, {told}torch {facts['torch']}, {machine}, {trained}"


# A base, and what differs from it


def base_of(trained: Sequence[Training]) -> Settings:
    """The values that more than half of the trainings have; of a method's own settings, more than half of its."""
    own = {one.method for one in trained}
    base: Settings = {}
    for name in dict.fromkeys(name for one in trained for name in one.settings):
        values = [one.settings.get(name, DEFAULT) for one in trained if _concerns(name, one.method, own)]
        common = next((value for value in values if values.count(value) > len(values) / 2), DEFAULT)
        if common is not DEFAULT:
            base[name] = common
    return base


def differences(training: Training, base: Settings, methods: set[str]) -> Settings:
    """The settings in which a training differs from the base; DEFAULT where it does without one of the base's."""
    names = dict.fromkeys([*base, *training.settings])
    concerned = [name for name in names if _concerns(name, training.method, methods)]
    has = {name: (base.get(name, DEFAULT), training.settings.get(name, DEFAULT)) for name in concerned}
    return {name: value for name, (usual, value) in has.items() if value is not usual and value != usual}


def _concerns(name: str, method: str, methods: set[str]) -> bool:
    """Whether a setting does anything for a method: it is everybody's, or the method's own."""
    owner = name.partition(".")[0]
    return owner == method or owner not in methods


def _base_lines(base: Settings, rest: str) -> Iterator[str]:
    yield f"Base: {rest}" + (", and" if base else ".")
    yield ""
    groups: dict[str, list[str]] = {}
    for name, value in base.items():
        section, _, key = name.partition(".")
        groups.setdefault(section, []).append(f"{key} {shown(value)}")
    if groups:
        yield from (f"- `{section}`: {', '.join(settings)}" for section, settings in groups.items())
        yield ""


def _table(measures: Sequence[str], trained: Sequence[Training], base: Settings) -> Iterator[str]:
    named = any(one.name for one in trained)
    methods = {one.method for one in trained}
    yield from _header((*(["variant"] if named else []), "method", "difference from the base", *measures))
    for one in trained:
        apart = differences(one, base, methods).items()
        text = ", ".join(f"{name.removeprefix(f'{one.method}.')} {shown(value)}" for name, value in apart) or "–"
        yield _row((*([one.name] if named else []), one.method, text, *one.cells))


def _header(titles: Sequence[str]) -> Iterator[str]:
    yield _row(titles)
    yield "|---" * len(titles) + "|"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def shown(value: object) -> str:
    """A value as YAML's flow style has it, numbers without needless digits."""
    if value is DEFAULT:
        return "(default)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
