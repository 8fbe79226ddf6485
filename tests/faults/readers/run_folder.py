"""A run's folder, as `report` reads it and as --resume does: config.yaml, environment.json, metrics.csv, result.json."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
import shutil
import statistics
import zlib
from pathlib import Path
from typing import Any, ClassVar

import yaml

from faults.mutations.trees import mutate_rows, mutate_tree, to_json, to_yaml
from faults.reader import Reader, expect
from faults.readers.config import remember_parsers, same_value
from ringfence.cli.compare import SYNTHETIC
from ringfence.report.comparison import read_comparison
from ringfence.report.table import table_csv, table_markdown, table_terminal
from ringfence.weak.experiments.parsing import as_config
from ringfence.weak.experiments.presets import from_preset
from ringfence.weak.experiments.settings import SyntheticSettings
from ringfence.weak.training.run_folder import RunFolder

HEADER = ["epoch", "lr", "dice", "satisfaction", "stability", "train_loss", "seconds_train", "seconds_validation"]
METHODS = ("penalty", "log_barrier")


class _Runs(Reader):
    def prepare(self, folder: Path) -> None:
        self.config = self.settings()
        self.about = {
            "task": "synthetic",
            "ringfence": "0",
            "python": "3",
            "commit": "x",
            "command": "ringfence compare synthetic",
            "started": "2026-01-01T00:00:00+00:00",
        }
        self.rows = [[n, 0.01, 0.1 * n, 0.5, 0.25, 1.5, 0.01, 0.01] for n in range(1, 6)]
        self.result = {
            "method": "penalty",
            "seed": 0,
            "epochs": 5,
            "last_epoch": dict(zip(HEADER, self.rows[-1], strict=True)),
        }
        self.valid_run = folder / "run"
        for method in METHODS:
            one = self.valid_run / "seed-0" / method
            one.mkdir(parents=True)
            (one / "metrics.csv").write_text(
                "\n".join(",".join(map(str, row)) for row in (HEADER, *self.rows)) + "\n"
            )
            (one / "result.json").write_text(json.dumps(self.result | {"method": method}))
        (self.valid_run / "config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        (self.valid_run / "environment.json").write_text(json.dumps(self.about))

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        run = folder / "run"
        shutil.copytree(self.valid_run, run)
        if number < self.valid:
            return run
        damaged = {
            "config.yaml": lambda: to_yaml(rng, mutate_tree(rng, self.config)),
            "environment.json": lambda: to_json(rng, mutate_tree(rng, self.about)),
            "seed-0/penalty/metrics.csv": lambda: mutate_rows(rng, HEADER, self.rows),
            "seed-0/penalty/result.json": lambda: to_json(rng, mutate_tree(rng, self.result)),
        }
        name = rng.choice(self.damaged)
        (run / name).write_bytes(damaged[name]())
        if rng.random() < 0.01:
            odd = rng.choice(
                ("seed-x", "seed-0/\x1b[2J", "seed-00", "seed-9999999999999999999999", "seed-٣", "seed--1")
            )
            (run / odd / "penalty").mkdir(parents=True)
            shutil.copy(run / "seed-0/penalty/metrics.csv", run / odd / "penalty")
        return run

    damaged: ClassVar[tuple[str, ...]]

    def settings(self) -> dict[str, Any]:
        """Those of the run."""
        return {"training": {"epochs": 5, "batch_size": 4}, "methods": list(METHODS), "seeds": [0]}


class Report(_Runs):
    """The tables of a comparison."""

    name: ClassVar[str] = "run-report"
    damaged: ClassVar[tuple[str, ...]] = (
        "config.yaml",
        "environment.json",
        "seed-0/penalty/metrics.csv",
        "seed-0/penalty/metrics.csv",
        "seed-0/penalty/result.json",
    )

    def read(self, path: Path) -> Any:
        from rich.console import Console

        comparison = read_comparison(path)
        text = io.StringIO()
        if zlib.crc32((path / "environment.json").read_bytes()) % 4 == 0:  # it takes longer than all the others
            Console(file=text, width=120).print(table_terminal(comparison))
        return comparison, table_csv(comparison), table_markdown(comparison), text.getvalue(), str(RunFolder(path))

    def check(self, path: Path, found: Any) -> str | None:
        comparison, as_csv, *texts = found
        for text in (as_csv, *texts):
            expect(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), f"control characters in {text[:200]!r}")
        rows = list(
            csv.DictReader(io.StringIO((path / "seed-0/penalty/metrics.csv").read_text("utf-8-sig"), newline=""))
        )
        dice = [float(row["dice"]) if row.get("dice") else math.nan for row in rows]
        said = [one for one in dice[-comparison.last :] if not math.isnan(one)]
        ours = next(row for row in comparison.rows() if row.method == "penalty").dice
        if said and set(comparison.seeds) == {0} and all(map(math.isfinite, said)):
            mean = statistics.fmean(said)
            expect(math.isclose(ours, mean, rel_tol=1e-9), f"dice {ours}, and it is {mean}")
        return None


class Resume(_Runs):
    """The settings that a run goes on with; they must be those that the folder says."""

    name: ClassVar[str] = "run-resume"
    count: ClassVar[int] = 100_000
    damaged: ClassVar[tuple[str, ...]] = ("config.yaml",)
    trusted: ClassVar[bool] = True

    def settings(self) -> dict[str, Any]:
        remember_parsers()
        changes = {"training.epochs": 5, "methods": list(METHODS), "seeds": [0]}
        config = as_config(from_preset(SyntheticSettings, "synthetic-small", changes))
        return {name: config[name] for name in ("training", "data", "methods", "seeds", "penalty")}

    def read(self, path: Path) -> Any:
        return SYNTHETIC._begun(str(path))  # what --resume reads; the rest of it parses the command line

    def check(self, path: Path, found: Any) -> str | None:
        said, now = (
            yaml.safe_load((path / "config.yaml").read_text("utf-8-sig")),
            json.loads(json.dumps(as_config(found))),
        )
        for group, values in said.items():
            expect(group in now, f"{group} is in the file, and in no setting")
            for name, value in values.items() if isinstance(values, dict) else [(None, values)]:
                expect(name is None or name in now[group], f"{group}.{name} is in the file, and in no setting")
                used = now[group] if name is None else now[group][name]
                expect(
                    same_value(used, value) or group in ("network", "optimiser", "schedule"),
                    f"{group}.{name} is {value!r}, and {used!r} is used",
                )
        return None
