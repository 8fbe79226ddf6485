"""Comparisons on sets without masks: there is no Dice, and everything else is there."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch

from prepared_sets import make_prepared
from ringfence.cli import main
from ringfence.report import read_comparison
from ringfence.report.comparison import Comparison
from ringfence.report.curves import curves_figure
from ringfence.report.pictures import pictures_figure
from ringfence.report.table import table_csv, table_markdown, table_terminal
from ringfence.weak.prepared.prepared_set import PreparedSet

TINY = """
network: {class_path: torch.nn.Conv2d, init_args: {kernel_size: 3, padding: 1}}
training: {epochs: 2, batch_size: 12, device: cpu}
"""


def unmasked(folder: Path) -> PreparedSet:
    """Three cases, none with a mask, all to be trained on; and boxes of them in a file."""
    from dataclasses import replace

    prepared = make_prepared(folder, cases=3, masked=False)
    kept = replace(prepared, cases=prepared.of("train"))
    kept.write_manifest()
    lines = [f"{case.name},{number},class 1,5,15,4,12" for case in kept.cases for number in (2, 3)]
    (folder.parent / "boxes.csv").write_text(
        "\n".join(["case,slice,class,row_low,row_high,column_low,column_high", *lines]) + "\n"
    )
    return kept


@pytest.mark.parametrize(("task", "seeds"), [("promise12", ["0"]), ("boxes", ["0", "1"])])
def test_the_comparison_ends_with_its_table(
    tmp_path: Path, task: str, seeds: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: it trained everything, then ended in an AttributeError."""
    monkeypatch.chdir(tmp_path)
    unmasked(tmp_path / "set")
    Path("tiny.yaml").write_text(TINY)
    words = ["--config", "tiny.yaml", "--data.prepared", "set", "--data.boxes", "boxes.csv", "--out", "run"]
    words += ["--methods", "log_barrier", "penalty", "--seeds", *seeds]
    assert main(["compare", task, *words]) == 0
    shown = capsys.readouterr().out
    assert "Log-barrier extension" in shown
    for out in ([], ["--out", "kept"]):
        assert main(["report", "run", *out]) == 0
        folder = Path(out[-1] if out else "run")
        for name in ("table.csv", "table.md", "curves.png", "pictures.png"):
            assert (folder / name).stat().st_size > 100
        with (folder / "table.csv").open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert [(row["method"], row["seeds"], row["dice"], row["dice_sd_last_epochs"]) for row in rows] == [
            ("penalty", str(len(seeds)), "", ""),
            ("log_barrier", str(len(seeds)), "", ""),
        ]
        assert all(row["satisfaction"] for row in rows)
        assert "| Log-barrier extension | – |" in (folder / "table.md").read_text()


def comparison(folder: Path, dice: dict[str, dict[int, list[float]]]) -> Comparison:
    epochs = {
        method: {
            seed: [
                {"epoch": number, "satisfaction": 0.5, "seconds_train": 1.0, "dice": one, "stability": math.nan}
                for number, one in enumerate(values, 1)
            ]
            for seed, values in seeds.items()
        }
        for method, seeds in dice.items()
    }
    return Comparison(folder, epochs, task="PROMISE12")


NAN = math.nan


@pytest.mark.parametrize(
    ("dice", "cells"),
    [
        ({"penalty": {0: [NAN] * 10}}, ["–"]),
        ({"penalty": {0: [NAN] * 10, 1: [NAN] * 10}}, ["–"]),
        ({"penalty": {0: [NAN] * 10}, "log_barrier": {0: [0.5] * 9 + [0.7]}}, ["–", "0.600 (0.100)"]),
        ({"penalty": {0: [0.4] * 10, 1: [NAN] * 10}}, ["0.400 (0.000)"]),
        ({"penalty": {0: [NAN] * 9 + [0.4], 1: [0.6] * 10}}, ["0.500 ± 0.141 (0.000)"]),
        ({"penalty": {0: [math.inf] * 10}}, ["–"]),
    ],
    ids=str,
)
def test_what_is_undefined_is_left_out_of_means(
    tmp_path: Path, dice: dict[str, dict[int, list[float]]], cells: list[str]
) -> None:
    """Against means and deviations of the numbers that are there, by hand."""
    made = comparison(tmp_path, dice)
    lines = table_markdown(made).splitlines()[2 : 2 + len(cells)]
    assert [line.split(" | ")[1] for line in lines] == cells
    assert len(table_csv(made).splitlines()) == 1 + len(cells)
    table_terminal(made)
    figure = curves_figure(made, tmp_path / "curves.png")
    titles = [axes.get_title() for axes in figure.axes]
    anything = any(math.isfinite(one) for seeds in dice.values() for values in seeds.values() for one in values)
    assert ("Validation DSC" in titles) is anything


def test_names_of_other_people_are_only_names(tmp_path: Path) -> None:
    """D13: a method's folder and a set's name, in Markdown, in a terminal, in CSV, and in figures."""
    from rich.console import Console

    method = "=x|[red]$\\frac$\x1b[31m\n_"
    made = comparison(tmp_path, {method: {0: [0.5] * 3}, "_hidden": {0: [0.5] * 3}})
    made = Comparison(tmp_path, made.epochs, task="[bold]\x1b]0;x\x07")
    markdown = table_markdown(made).splitlines()
    assert markdown[2].startswith("| =x\\|[red]$\\\\frac$\\\\x1b[31m\\\\n ")
    assert "\x1b" not in "".join(markdown)
    console = Console(width=200, color_system="truecolor", force_terminal=True, record=True)
    with console.capture() as text:
        console.print(table_terminal(made))
    assert "[red]" in text.get()
    assert "\x1b]0" not in text.get()
    assert "\x1b[31m\n" not in text.get()
    with_cell = list(csv.reader(table_csv(made).splitlines(keepends=True)))[1][0]
    assert with_cell.startswith("'=x|")
    curves_figure(made, tmp_path / "curves.png")
    folder = tmp_path / "seed-0" / "_hidden"
    folder.mkdir(parents=True)
    kept = {"image": torch.zeros(2, 8, 8, dtype=torch.uint8), "truth": torch.zeros(2, 8, 8, dtype=torch.bool)}
    torch.save(kept | {"predicted": torch.zeros(2, 8, 8, dtype=torch.uint8)}, folder / "pictures.pt")
    pictures_figure(made, tmp_path / "pictures.png")


def test_a_comparison_of_another_kind_of_file(tmp_path: Path) -> None:
    """What is no table of epochs is one line."""
    folder = tmp_path / "seed-0" / "penalty"
    folder.mkdir(parents=True)
    for content in (
        b"\xff\xfe",
        b"epoch\n1\n",
        b"",
        b'epoch,"satis\n',
        b"epoch,satisfaction,seconds_train\nx,y,z\n",
    ):
        (folder / "metrics.csv").write_bytes(content)
        with pytest.raises(ValueError, match=r"metrics\.csv") as caught:
            read_comparison(tmp_path)
        assert len(str(caught.value).splitlines()) == 1
