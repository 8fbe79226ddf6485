"""How near every method comes to a known optimum: ``python benchmarks/convergence.py``.

The methods, problems and recipes are those of the tests (tests/registry.py, tests/convex.py), so that
results/core/convergence.md shows what tests/methods/test_convex.py asserts.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ringfence.environment import commit, environment

TESTS = Path(__file__).resolve().parent.parent / "tests"
ROOM = "tolerance of equalities"
MEASURES = {
    "objective": "Distance of the objective from the optimum, |E - E*|",
    "violation": "Worst violation, max(f, 0)",
    "duals": "Distance of `duals()` from the multipliers, max |λ - λ*|",
}


def distances() -> dict[str, dict[str, dict[str, Any]]]:
    """By method and problem: how far it ended from what the oracle says, or why it does not solve the problem."""
    sys.path.insert(0, str(TESTS))
    from convex import PROBLEMS  # type: ignore[import-not-found]
    from registry import METHODS  # type: ignore[import-not-found]

    found: dict[str, dict[str, dict[str, Any]]] = {}
    for method, entry in METHODS.items():
        found[method] = {}
        for problem in PROBLEMS:
            why_not = entry.recipe.why_not(problem)
            if why_not is not None:
                found[method][problem] = {"why not": why_not}
                continue
            solved, way = entry.solve(problem), entry.recipe.way(problem)
            cell = {measure: getattr(solved, measure) for measure in MEASURES}
            cell["optimum"] = entry.recipe.problem(problem).optimum
            cell["tolerance"] = way.tolerance
            cell["tolerance of duals"] = way.duals
            if entry.recipe.gives_room(problem):
                cell[ROOM] = entry.recipe.room
            found[method][problem] = cell
    return found


def as_markdown(result: dict[str, Any]) -> str:
    """A table for each measure, why cells are empty, and where and how it was measured."""
    cells = result["distances"]
    problems = list(next(iter(cells.values())))
    reasons: list[str] = []
    lines: list[str] = []
    for measure, title in MEASURES.items():
        lines += [f"**{title}**", "", f"| method | {' | '.join(problems)} |", "|---|" + "---|" * len(problems)]
        lines += [
            f"| {method} | {' | '.join(_shown(row[problem], measure, reasons) for problem in problems)} |"
            for method, row in cells.items()
        ]
        lines.append("")
    rooms = {cell[ROOM] for row in cells.values() for cell in row.values() if ROOM in cell}
    lines += [
        f"† An equality leaves a barrier no room: it is given a tolerance of {room:g}, and measured against the "
        "optimum within it."
        for room in sorted(rooms)
    ]
    lines.append("")
    lines += [f"{number}. {reason[0].upper()}{reason[1:]}." for number, reason in enumerate(reasons, start=1)]
    where = result["environment"]
    lines += [
        "",
        f"Written by `{result['command']}` (seed {result['seed']}, float64, one thread) on {where['cpu']}, "
        f"torch {where['torch']}; the oracle is cvxpy {where['cvxpy']} with Clarabel {where['clarabel']}, "
        "or a closed form.",
    ]
    return "\n".join(lines) + "\n"


def _shown(cell: dict[str, Any], measure: str, reasons: list[str]) -> str:
    """A number, or the number of the reason why there is none."""
    value = cell.get(measure)
    if value is not None:
        return ("< 1e-12" if value < 1e-12 else f"{value:.0e}") + " †" * (ROOM in cell)
    reason = str(cell.get("why not", cell.get("tolerance of duals")))
    if reason not in reasons:
        reasons.append(reason)
    return f"– ({reasons.index(reason) + 1})"


def main() -> None:
    """Solve everything, print, and write ``convergence.json`` and ``convergence.md``."""
    parser = argparse.ArgumentParser(description="How near every method comes to a known optimum.")
    parser.add_argument("--out", type=Path, default=Path("results/core"))
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "command": "python benchmarks/convergence.py",
        "seed": 0,
        "commit": commit(),
        "environment": environment() | {package: version(package) for package in ("cvxpy", "clarabel")},
        "distances": distances(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "convergence.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    (options.out / "convergence.md").write_text(as_markdown(result))
    print(as_markdown(result))


if __name__ == "__main__":
    main()
