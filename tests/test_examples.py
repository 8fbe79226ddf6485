"""What README and examples show is what they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, typed: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], input=typed, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + (done.stderr if typed else "")


def test_readme_works_pasted_into_a_prompt() -> None:
    """Typed line by line, as a person pasting would; any error ends up in what the prompt prints."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    printed = run("-i", "-q", typed="\n".join(blocks))
    assert "Error" not in printed, printed
    assert "Residual [200, 1, 2]: 400 of 400 constraints satisfied" in printed
    assert "feasible: all 400 constraints hold" in printed


def table(printed: str) -> dict[str, list[float]]:
    rows = {}
    for line in printed.splitlines():
        found = re.match(r"(.{24})\s+([\d.]+)\s+([\d.]+) %\s+(\S+)$", line)
        if found:
            rows[found[1].strip()] = [float(number) for number in found.groups()[1:]]
    return rows


def test_quickstart_holds_its_limits_with_the_barrier() -> None:
    rows = table(run("examples/quickstart.py"))
    assert len(rows) == 6
    assert rows["log-barrier extension"][1] == 100.0
    assert rows["log-barrier extension"][2] == 0.0
    assert rows["no limits"][1] < 99.0  # so the limits were worth something
    assert rows["log-barrier extension"][0] < 1.1 * rows["no limits"][0]


def test_certificate_example_keeps_its_promise_at_every_t() -> None:
    printed = run("-W", "error", "examples/certificate.py")
    rows = [line.split() for line in printed.splitlines() if re.match(r"\s+\d+\s+(yes|no)", line)]
    assert len(rows) == 9
    for _, feasible, _, distance, gap, bound in rows:
        assert feasible == "yes"
        assert -1e-6 <= float(distance) <= float(gap) + 1e-6 <= float(bound) + 2e-6
    assert "Not promised" in printed


@pytest.mark.parametrize("example", ["quickstart.py", "lightning_loop.py"])
def test_help(example: str) -> None:
    assert "--epochs" in run(f"examples/{example}", "--help")


def test_lightning_example_keeps_a_feasible_model(tmp_path: Path) -> None:
    printed = run("examples/lightning_loop.py", "--epochs", "20", "--out", tmp_path)
    kept = re.search(r"best feasible model: (\S+) \(val_error ([\d.]+)\)", printed)
    assert kept is not None, printed
    assert Path(kept[1]).exists()
    assert float(kept[2]) < 0.1
