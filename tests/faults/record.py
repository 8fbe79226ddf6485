"""What was counted, as JSON; the table made of it; the page that shows the table."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from faults.fuzzing import ACCEPTED, FAULTS, REFUSED
from ringfence.environment import commit, environment

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
FILE, MARKDOWN = "faults.json", "faults.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
COMMAND = "python tests/faults all --out results/faults"
PARTS = ("fuzz", "kills", "disks", "pairs", "bombs")
TITLES = {
    "fuzz": ("Damaged and hostile files", "reader", "inputs"),
    "kills": ("Killed, then repeated until done", "command", "kills"),
    "disks": ("No room, or no right to write; then repeated with room", "command", "trials"),
    "pairs": ("Two processes on one folder", "commands", "rounds"),
    "bombs": ("Small files that stand for gigabytes", "file", "tries"),
}
FAULTS_OF: dict[str, tuple[str, ...]] = {
    "fuzz": FAULTS,
    "kills": ("differ", "stuck", "left over"),
    "disks": ("unclear", "lost", "differ", "stuck", "left over"),
    "pairs": ("wrong", "unclear", "left over"),
    "bombs": ("over the limit", "unclear"),
}
"""Counts that must be 0."""


def read_record(folder: Path) -> dict[str, Any]:
    """What was counted before, if anything was."""
    file = folder / FILE
    return json.loads(file.read_text()) if file.exists() else {}


def merge(folder: Path, part: str, name: str, counts: dict[str, Any], *, seed: int, seconds: float) -> None:
    """Put a line of a part into the record; others stay. Written at once: a run that is stopped keeps it."""
    record = read_record(folder)
    facts = environment() | {
        "commit": commit(),
        "hardware": f"{os.cpu_count()} × {platform.processor() or platform.machine()}",
    }
    record |= {"command": COMMAND, "seed": seed, "environment": facts}
    record.setdefault(part, {})[name] = counts | {
        "seconds": round(seconds, 1),
        "commit": facts["commit"],
        "where": _where(facts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(record, indent=1) + "\n")
    (folder / MARKDOWN).write_text(as_markdown(record))


def take(folder: Path, other: dict[str, Any]) -> None:
    """Put the lines of a record that was made on another machine into this one, with where that was."""
    record = read_record(folder)
    for part in PARTS:
        for name, line in other.get(part, {}).items():
            record.setdefault(part, {})[name] = line | {"where": _where(other["environment"])}
    (folder / FILE).write_text(json.dumps(record, indent=1) + "\n")
    (folder / MARKDOWN).write_text(as_markdown(record))


def _where(facts: dict[str, Any]) -> str:
    return ", ".join(
        [*(f"{name} {facts[name]}" for name in ("python", "torch", "numpy") if name in facts), facts.get("cpu", "")]
    )


def faults(record: dict[str, Any]) -> int:
    """All counts that should be 0, together."""
    return sum(
        line.get(name, 0) for part in PARTS for line in record.get(part, {}).values() for name in FAULTS_OF[part]
    )


def as_markdown(record: dict[str, Any]) -> str:
    """A table for each part, with its sum, and where it ran."""
    lines: list[str] = []
    for part in PARTS:
        found = record.get(part)
        if not found:
            continue
        title, first, tried = TITLES[part]
        columns = [tried, *((ACCEPTED, REFUSED) if part == "fuzz" else ()), *FAULTS_OF[part]]
        more = ["peak MB"] if part == "bombs" else []
        lines += [
            f"**{title}**",
            "",
            f"| {' | '.join([first, *columns, *more])} |",
            "|---" * (1 + len(columns) + len(more)) + "|",
        ]
        for name, line in found.items():
            skipped = f" (not here: {line['skipped']})" if line.get("skipped") else ""
            cells = [f"{line.get(column, 0):,}" for column in columns] + [str(line.get(one, "")) for one in more]
            lines.append(f"| {name}{skipped} | {' | '.join(cells)} |")
        if len(found) > 1:
            sums = [f"{sum(line.get(column, 0) for line in found.values()):,}" for column in columns]
            lines.append(f"| **all** | {' | '.join([*sums, *('' for _ in more)])} |")
        lines.append("")
    counted = [(name, line) for part in PARTS for name, line in record.get(part, {}).items()]
    commits = sorted({line.get("commit", "")[:12] for _, line in counted})
    here = _where(record.get("environment", {}))
    lines.append(
        f"Counted by `{record.get('command', COMMAND)}`, part by part, seed {record.get('seed')}; {here}; commits "
        f"{', '.join(commits)}, a line's own in {FILE}."
    )
    for where in sorted({line.get("where", here) for _, line in counted} - {here}):
        names = ", ".join(name for name, line in counted if line.get("where") == where)
        lines.append(f"By {where}: {names}.")
    return "\n".join(lines) + "\n"


def write_page(record: dict[str, Any], page: Path = PAGE) -> None:
    """Put the table between its marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{as_markdown(record)}\n{END}{after}", encoding="utf-8")
