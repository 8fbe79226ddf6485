"""What README and examples show is what they do."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from children import python

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, typed: str | None = None) -> str:
    done = python(*arguments, typed=typed, cwd=ROOT)
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


LOOP = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
LINES = re.findall(r"^\| `(fence = .*?)` \| (.*?) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_readme_swaps_every_method() -> None:
    assert [line.split("rf.")[1].split("(")[0] for line, _ in LINES] == list(METHODS)
    assert LOOP.count("fence = rf.LogBarrier(t=5.0, mu=1.02)") == 1


METHODS = ("LogBarrier", "Penalty", "Lagrangian", "ReLULagrangian", "AugmentedLagrangian")


@pytest.mark.parametrize(("line", "claim"), LINES, ids=METHODS)
def test_readmes_loop_enforces_with_line_1_swapped(line: str, claim: str) -> None:
    """D3: none is silently idle. Without a fence the limits are exceeded by 0.25."""
    names: dict[str, Any] = {}
    exec(LOOP.replace("fence = rf.LogBarrier(t=5.0, mu=1.02)", line), names)  # our own README, as a reader runs it
    worst = names["limit"].violation.max().item()
    assert type(names["fence"]).__name__ in line
    if claim == "all 400 hold":
        assert worst == 0.0
    else:
        assert worst <= float(re.fullmatch(r"held to within ([\d.]+)", claim)[1])
    for name, number in names["fence"].summary().items():
        assert number > 0.0, name


def test_readmes_loop_without_a_fence_breaks_its_limits() -> None:
    names: dict[str, Any] = {}
    exec(re.sub(r"(?m)^( *)fence\.step\(\).*|^( *)loss = loss \+ fence.*", "", LOOP), names)
    assert 0.15 < names["limit"].violation.max().item() < 0.3


def table(printed: str) -> dict[str, list[float]]:
    rows = {}
    for line in printed.splitlines():
        found = re.match(r"(.{24})\s+([\d.]+)\s+([\d.]+) %\s+(\S+)$", line)
        if found:
            rows[found[1].strip()] = [float(number) for number in found.groups()[1:]]
    return rows


def test_quickstart_holds_its_limits_with_the_barrier() -> None:
    rows = table(run("examples/quickstart.py", "--epochs", "60"))
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


def test_help() -> None:
    assert "--cases" in run("examples/make_nnunet_folder.py", "--help")


def test_the_constraint_of_the_example_holds_where_it_says() -> None:
    """Of three images one has its object at the border: nothing is asked of it."""
    first, second = run("examples/own_constraint.py").splitlines()
    assert "2 of 2 constraints satisfied" in first
    assert "0 of 2 constraints satisfied" in second


def test_the_example_folder_is_the_same_each_time_and_never_written_twice(tmp_path: Path) -> None:
    command = ("examples/make_nnunet_folder.py", "--cases", "2", "--shape", "8", "16", "16")
    for name in ("a", "b"):
        run(*command, tmp_path / name)
    files = [
        {file.relative_to(root): file for file in root.rglob("*.*")} for root in (tmp_path / "a", tmp_path / "b")
    ]
    assert files[0].keys() == files[1].keys()
    for name, file in files[0].items():
        both = [
            gzip.decompress(one.read_bytes()) if name.suffix == ".gz" else one.read_bytes()
            for one in (file, files[1][name])
        ]
        assert both[0] == both[1], name
    with pytest.raises(AssertionError, match="is there already: name a new folder"):
        run(*command, tmp_path / "a")


def test_boxes_of_the_example_folder_are_tight(tmp_path: Path) -> None:
    run("examples/make_nnunet_folder.py", tmp_path / "set", "--cases", "2", "--shape", "8", "24", "20")
    with (tmp_path / "set" / "boxes.csv").open() as file:
        rows = list(csv.DictReader(file))
    seen = 0
    for case in ("case_00", "case_01"):
        labels = np.asarray(nib.load(tmp_path / "set" / "labelsTr" / f"{case}.nii.gz").dataobj)
        assert labels.shape == (20, 24, 8)
        assert set(np.unique(labels)) == {0, 1, 2, 3}
        for row in (row for row in rows if row["case"] == case):
            label = 1 + ["bright", "middle", "faint"].index(row["class"])
            here = label == labels[..., int(row["slice"])].T
            ends = [int(row[name]) for name in ("row_low", "row_high", "column_low", "column_high")]
            assert ends == [
                here.any(1).argmax(),
                24 - here.any(1)[::-1].argmax(),
                here.any(0).argmax(),
                20 - here.any(0)[::-1].argmax(),
            ]
            seen += 1
        assert seen == sum(row["case"] <= case for row in rows)
    there = sum((np.asarray(nib.load(file).dataobj) == label).any(axis=(0, 1)).sum() for file in (tmp_path / "set" / "labelsTr").iterdir() for label in (1, 2, 3))  # fmt: skip
    assert seen == there


def test_lightning_example_keeps_a_feasible_model(tmp_path: Path) -> None:
    printed = run("examples/lightning_loop.py", "--epochs", "20", "--out", tmp_path)
    kept = re.search(r"best feasible model: (\S+) \(val_error ([\d.]+)\)", printed)
    assert kept is not None, printed
    assert Path(kept[1]).exists()
    assert float(kept[2]) < 0.1
