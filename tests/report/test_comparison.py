"""Tables and figures from a folder of known numbers."""

from __future__ import annotations

import csv
import io
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.report import read_comparison, write, write_report
from ringfence.report.comparison import PAPER
from ringfence.report.curves import curves_figure
from ringfence.report.pictures import GREEN, OPACITY, RED, _rows, has_pictures, overlay, pictures_figure
from ringfence.report.table import table_csv, table_markdown
from ringfence.weak.training.measures import MEASURES, Measure
from ringfence.weak.training.methods import colour_of, title_of

EPOCHS, SEEDS = 20, (0, 7)
METHODS = ("log_barrier", "full_supervision")


def numbers(method: str, seed: int) -> np.ndarray:
    """Dice, satisfaction, stability and seconds of each epoch, off any round number."""
    generator = np.random.default_rng([METHODS.index(method), seed])
    return generator.uniform(0.2, 0.9, (EPOCHS, 4))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for method in METHODS:
        for seed in SEEDS:
            run = tmp_path / f"seed-{seed}" / method
            run.mkdir(parents=True)
            lines = ["epoch,dice,satisfaction,stability,seconds_train"]
            for epoch, (dice, satisfied, stable, seconds) in enumerate(numbers(method, seed), start=1):
                lines.append(f"{epoch},{dice},{satisfied},{'' if epoch == 1 else stable},{seconds}")
            (run / "metrics.csv").write_text("\n".join(lines) + "\n")
            image, mask = torch.zeros(2, 8, 8, dtype=torch.uint8), torch.zeros(2, 8, 8, dtype=torch.bool)
            torch.save({"image": image, "truth": mask, "predicted": (~mask).to(torch.uint8)}, run / "pictures.pt")
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is about files: figures take a second each."""
    for name in ("curves_figure", "pictures_figure"):
        monkeypatch.setattr(write, name, lambda comparison, path, *rest: path.touch())
    monkeypatch.setattr(write, "barrier_figure", lambda path: path.touch())


def test_the_table_against_numpy(folder: Path) -> None:
    comparison = read_comparison(folder)
    assert comparison.last == 4  # a fifth of the epochs: 10 of the paper's 50
    for row, method in zip(comparison.rows(), METHODS, strict=True):
        tails = np.stack([numbers(method, seed)[-4:] for seed in SEEDS])
        assert row.method == method
        assert row.dice == pytest.approx(tails[..., 0].mean())
        assert row.spread == pytest.approx(tails[..., 0].std(axis=1).mean())
        assert row.between_seeds == pytest.approx(tails[..., 0].mean(axis=1).std(ddof=1))
        assert row.measures["satisfaction"] == pytest.approx(tails[..., 1].mean())
        assert row.measures["stability"] == pytest.approx(tails[..., 2].mean())
        assert row.seconds == pytest.approx(np.median([numbers(method, seed)[:, 3] for seed in SEEDS]))


def test_tables_hold_those_numbers_beside_the_papers(folder: Path) -> None:
    comparison = read_comparison(folder)
    row = comparison.rows()[0]
    (read,) = [one for one in csv.DictReader(io.StringIO(table_csv(comparison))) if one["method"] == "log_barrier"]
    assert float(read["dice"]) == pytest.approx(row.dice, rel=1e-5)
    assert (
        (float(read["paper_dice"]), float(read["paper_dice_sd"]))
        == PAPER["synthetic"]["log_barrier"]
        == (0.945, 0.001)
    )
    markdown = table_markdown(comparison)
    assert (
        f"| {title_of('log_barrier')} | {row.dice:.3f} ± {row.between_seeds:.3f} ({row.spread:.3f}) | 0.945 (0.001) |"
        in markdown
    )
    base = comparison.rows()[1].seconds
    assert f"| {row.seconds / base:.2f} × |" in markdown
    assert "over 2 seeds" in markdown
    assert "last 4 of 20 epochs" in markdown


def test_a_single_seed_has_no_spread_between_seeds(folder: Path) -> None:
    for path in (folder / "seed-7").rglob("*"):
        if path.is_file():
            path.unlink()
    comparison = read_comparison(folder)
    assert math.isnan(comparison.rows()[0].between_seeds)
    assert "±" not in table_markdown(comparison).split("DSC:")[0]


def test_a_row_with_fewer_seeds_says_so(folder: Path) -> None:
    (folder / "seed-7" / "full_supervision" / "metrics.csv").unlink()
    assert "| Full supervision (1 of 2 seeds) |" in table_markdown(read_comparison(folder))
    assert "| Log-barrier extension |" in table_markdown(read_comparison(folder))


def test_the_caption_says_if_rows_have_fewer_seeds(folder: Path) -> None:
    assert "over 2 seeds" in table_markdown(read_comparison(folder))
    (folder / "seed-7" / METHODS[0] / "metrics.csv").unlink()
    assert "over up to 2 seeds" in table_markdown(read_comparison(folder))


def test_the_first_epoch_has_no_stability(folder: Path) -> None:
    assert math.isnan(read_comparison(folder).epochs["log_barrier"][0][0]["stability"])


def test_figures_are_drawn(folder: Path) -> None:
    from matplotlib.image import imread

    files = write_report(read_comparison(folder))
    for file in files:
        if file.suffix == ".png":
            picture = imread(file)
            assert picture.std() > 0.02, file.name  # something is on it


def test_a_report_elsewhere_keeps_the_numbers_beside_it(folder: Path, undrawn: None) -> None:
    elsewhere = folder / "results"
    write_report(read_comparison(folder), elsewhere)
    again = read_comparison(elsewhere)
    assert str(again.epochs) == str(read_comparison(folder).epochs)  # as text, since NaN is not equal to itself
    assert "pictures.png" not in [file.name for file in write_report(again)]  # there are no predictions to draw


def test_curves_are_the_means_over_seeds(folder: Path) -> None:
    figure = curves_figure(read_comparison(folder), folder / "curves.png")
    for axes, column in zip(figure.axes, (1, 2, 0), strict=True):
        for line, method in zip(axes.get_lines(), METHODS, strict=True):
            expected = np.mean([numbers(method, seed)[:, column] for seed in SEEDS], axis=0)
            first = 1 if column == 2 else 0  # the first epoch has no stability
            assert line.get_xdata() == pytest.approx(np.arange(1 + first, EPOCHS + 1))
            assert line.get_ydata() == pytest.approx(expected[first:])


def test_curves_of_one_epoch_are_points(folder: Path) -> None:
    for file in folder.rglob("metrics.csv"):
        file.write_text("\n".join(file.read_text().splitlines()[:2]) + "\n")
    figure = curves_figure(read_comparison(folder), folder / "curves.png")
    assert all(line.get_marker() == "o" for line in figure.axes[0].get_lines())


def test_pictures_show_what_each_method_found(folder: Path) -> None:
    rows, *_ = _rows(read_comparison(folder))
    assert [title for title, _ in rows] == ["Truth", *(title_of(method) for method in METHODS)]
    assert not rows[0][1].any()
    assert all(masks.all() for _, masks in rows[1:])


def test_fewer_pictures_are_narrower(folder: Path) -> None:
    from matplotlib.image import imread

    comparison = read_comparison(folder)
    pictures_figure(comparison, folder / "all.png")
    pictures_figure(comparison, folder / "one.png", most=1)
    widths = [imread(folder / name).shape[1] for name in ("all.png", "one.png")]
    assert widths[1] < widths[0]


def test_a_run_that_grew_is_reported_to_the_same_place(folder: Path, undrawn: None) -> None:
    kept = folder / "kept"
    (folder / "config.yaml").write_text("seeds: [0]\n")
    (folder / "environment.json").write_text('{"started": "now", "command": "c"}')
    write_report(read_comparison(folder), kept)
    (folder / "config.yaml").write_text("seeds: [0, 1]\n")
    write_report(read_comparison(folder), kept)
    assert (kept / "config.yaml").read_text() == "seeds: [0, 1]\n"
    (folder / "environment.json").write_text('{"started": "later", "command": "c"}')
    (folder / "config.yaml").write_text("seeds: [2]\n")
    with pytest.raises(FileExistsError, match="kept holds another run"):
        write_report(read_comparison(folder), kept)


def test_pictures_are_of_a_seed_that_has_finished(folder: Path) -> None:
    for method in METHODS:
        (folder / "seed-0" / method / "pictures.pt").unlink()
    assert has_pictures(read_comparison(folder))  # seed 7's
    shutil.copy(folder / "seed-7" / METHODS[0] / "pictures.pt", folder / "seed-0" / METHODS[0] / "pictures.pt")
    assert len(_rows(read_comparison(folder))[0]) == 1 + len(METHODS)  # still seed 7's: it has both
    (folder / "seed-0" / METHODS[0] / "pictures.pt").unlink()
    (folder / "seed-7" / METHODS[0] / "pictures.pt").write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"pictures.pt is damaged \(.+\): remove it to leave that method out"):
        pictures_figure(read_comparison(folder), folder / "pictures.png")


def test_an_unfinished_training_says_so(folder: Path) -> None:
    (folder / "config.yaml").write_text("seeds:\n- 0\ntraining:\n  batch_size: 4\n  epochs: 30\n  lr: 1\n")
    comparison = read_comparison(folder)
    assert comparison.length == 30
    assert "| Log-barrier extension (epoch 20 of 30) |" in table_markdown(comparison)


def test_another_runs_folder_is_not_written_to(folder: Path, undrawn: None) -> None:
    other = folder / "other"
    write_report(read_comparison(folder), other)
    write_report(read_comparison(folder), other)  # the same run's: brought up to date
    (other / "config.yaml").write_text("another: run\n")
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    with pytest.raises(
        FileExistsError, match=r"other holds another run: name a new folder with --out. Nothing was changed"
    ):
        write_report(read_comparison(folder), other)
    assert before == {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["result.json", "last.ckpt"])
def test_a_folder_that_a_run_lives_in_is_not_written_to(folder: Path, undrawn: None, file: str) -> None:
    """Even if it has no config: its metrics would be replaced by another run's."""
    other = folder.parent / f"{folder.name}-lived-in"
    (other / "seed-0" / "penalty").mkdir(parents=True)
    (other / "seed-0" / "penalty" / file).write_text("{}")
    with pytest.raises(FileExistsError, match="lived-in holds another run"):
        write_report(read_comparison(folder), other)
    assert [one.name for one in other.rglob("*") if one.is_file()] == [file]


def test_overlays_are_green_within_the_mask_and_red_outside() -> None:
    image = torch.tensor([[0, 255]], dtype=torch.uint8)
    picture = overlay(image, torch.tensor([[True, False]]))
    torch.testing.assert_close(picture[0, 0], OPACITY * torch.tensor(GREEN))
    torch.testing.assert_close(picture[0, 1], 1 - OPACITY + OPACITY * torch.tensor(RED))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch,dice\n1,0.5\n", "is damaged: 'satisfaction'"),
        ("epoch,dice,satisfaction,stability,seconds_train\n1,half,1,1,1\n", "is damaged: could not convert"),
        ("epoch,dice,satisfaction,stability,seconds_train\n", "is damaged: it has no epoch"),
        ("", "is damaged"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, text: str, message: str) -> None:
    file = folder / "seed-0" / "log_barrier" / "metrics.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_comparison(folder)
    assert str(file) in str(error.value)


def test_the_table_is_about_the_task_that_was_compared(folder: Path) -> None:
    (folder / "environment.json").write_text('{"task": "PROMISE12"}')
    comparison = read_comparison(folder)
    assert comparison.paper["log_barrier"] == (0.813, 0.024)
    text = table_markdown(comparison)
    assert "0.813 (0.024)" in text
    assert "3D, per validation patient" in text
    (folder / "environment.json").write_text('{"task": "my spleens"}')
    text = table_markdown(read_comparison(folder))
    assert "0.813" not in text
    assert "paper's network" not in text
    (folder / "environment.json").write_text("damaged")
    assert read_comparison(folder).task == "synthetic"


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "kept",
    ["synthetic/comparison/small", "synthetic/comparison/paper", "promise12/comparison", "promise12/tuning/before"],
)
def test_runs_of_older_versions_still_report(kept: str, tmp_path: Path) -> None:
    """Their settings are no longer these, but their epochs are: the same table as was kept with them."""
    folder = ROOT / "results" / kept
    comparison = read_comparison(folder)
    assert comparison.planned == comparison.length == (6 if "small" in kept else 50 if "synthetic" in kept else 40)
    assert list(comparison.epochs) == ["lagrangian", "relu_lagrangian", "penalty", "log_barrier", "full_supervision", "augmented_lagrangian"]  # fmt: skip
    assert comparison.paper["log_barrier"] == PAPER[kept.split("/")[0]]["log_barrier"]
    files = write_report(comparison, tmp_path / "again")
    assert [file.name for file in files] == ["table.csv", "table.md", "curves.png", "barrier.png"]
    before = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    after = list(csv.DictReader(files[0].read_text().splitlines()))
    assert after == before


def test_a_method_that_nobody_knows_has_a_row_and_a_line_all_the_same(folder: Path) -> None:
    """Of a run whose method was registered elsewhere."""
    shutil.copytree(folder / "seed-0" / "log_barrier", folder / "seed-0" / "a_method_of_mine")
    comparison = read_comparison(folder)
    assert list(comparison.epochs) == [*METHODS, "a_method_of_mine"]
    assert "| a method of mine (1 of 2 seeds) |" in table_markdown(comparison)
    lines = curves_figure(comparison, folder / "curves.png").axes[0].get_lines()
    assert [line.get_label() for line in lines][-1] == "a method of mine"
    assert lines[-1].get_color() == colour_of("a_method_of_mine")


def test_a_measure_that_only_some_runs_have_is_a_column(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "surprise", Measure("surprise", "surprise!", lambda value: f"{value:.1f} ?"))
    assert "surprise" not in table_csv(read_comparison(folder))
    file = folder / "seed-7" / "log_barrier" / "metrics.csv"
    header, *lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{header},surprise", *(f"{line},{number}" for number, line in enumerate(lines))]))
    comparison = read_comparison(folder)
    assert comparison.rows()[0].measures["surprise"] == pytest.approx(np.mean([16, 17, 18, 19]))
    text = table_markdown(comparison)
    assert "| stability | surprise! | epoch time |" in text
    assert "| 17.5 ? |" in text
    rows = list(csv.DictReader(io.StringIO(table_csv(comparison))))
    assert [row["surprise"] for row in rows] == ["17.5", ""]


def test_a_run_that_lost_its_note_is_never_shown_beside_the_papers_numbers(folder: Path) -> None:
    """D4: killed between config.yaml and environment.json, a run on PROMISE12 had the synthetic paper's column."""
    (folder / "config.yaml").write_text("data: {prepared: somewhere}\ntraining: {epochs: 20}\n")
    for note in (None, "{", "[]", "{}", '{"task": 3}'):
        if note is not None:
            (folder / "environment.json").write_text(note)
        found = read_comparison(folder)
        assert found.paper == {}
        assert "synthetic" not in table_markdown(found)


def test_what_a_full_disk_left_is_no_run(folder: Path, tmp_path: Path, undrawn: None) -> None:
    """D12: report --out left an empty config.yaml, and the folder held "another run" from then on."""
    (folder / "config.yaml").write_text("training: {epochs: 20}\n")
    out = tmp_path / "kept"
    out.mkdir()
    for name in ("config.yaml", ".config.yaml.12.part", ".ringfence.lock"):
        (out / name).write_text("")
    write_report(read_comparison(folder), out)
    assert (out / "config.yaml").read_text() == "training: {epochs: 20}\n"
    assert not [file.name for file in out.iterdir() if file.name.startswith(".")]
