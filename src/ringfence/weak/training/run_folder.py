"""A run's folder: what was asked, where it ran, what came out. Nothing in it is ever overwritten by another run."""

from __future__ import annotations

import html
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import yaml

from ringfence.environment import commit, environment
from ringfence.files import locked, write_text

CONFIG: Final = "config.yaml"
ENVIRONMENT: Final = "environment.json"
METRICS: Final = "metrics.csv"
RESULT: Final = "result.json"
PICTURES_FILE: Final = "pictures.pt"
LOCK: Final = "training.lock"
GROWING: Final = ("methods", "seeds")
"""What can be added to a run when it goes on; what it was begun with stays."""


@dataclass(frozen=True)
class OneRun:
    """The part of the folder that one method's training with one seed has to itself."""

    path: Path

    @property
    def finished(self) -> bool:
        """Whether it trained to its end: the result is written last."""
        return (self.path / RESULT).exists()

    @property
    def checkpoint(self) -> Path | None:
        """Where to go on from, if it began."""
        path = self.path / "last.ckpt"
        return path if path.exists() else None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result; the checkpoint to go on from is of no more use."""
        write_text(self.path / RESULT, json.dumps(result, indent=2) + "\n")
        if self.checkpoint:
            self.checkpoint.unlink()


@dataclass(frozen=True, repr=False)
class RunFolder:
    """A comparison's folder: ``config.yaml``, ``environment.json``, and ``seed-S/METHOD/`` for each training."""

    path: Path

    def run(self, seed: int, method: str) -> OneRun:
        """The folder of one training."""
        return OneRun(self.path / f"seed-{seed}" / method)

    @property
    def results(self) -> list[dict[str, Any]]:
        """What every finished training reached: its method, seed, epochs, and the last epoch's measures."""
        files = sorted(self.path.glob(f"seed-*/*/{RESULT}"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def __str__(self) -> str:
        lines = [" ".join(f"{cell:<21}" for cell in row).rstrip() for row in self._rows()]
        return "\n".join([f"Comparison {self.path}", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in self._rows())
        return f"<p>{html.escape(str(self.path))}</p><table>{lines}</table>"

    def _rows(self) -> list[list[str]]:
        """The method, the seed and what the last epoch measured."""
        names = ("dice", "satisfaction", "stability")
        rows = [["method", "seed", *names]]
        for one in self.results:
            last = one.get("last_epoch", {})
            rows.append([one["method"], str(one["seed"]), *(f"{last.get(name, math.nan):.3f}" for name in names)])
        return rows


def open_run_folder(
    path: Path, config: Mapping[str, Any], resume: bool, about: Mapping[str, str] | None = None
) -> RunFolder:
    """Begin a run in a new folder, or go on in that of an interrupted one.

    Args:
        path: the folder.
        config: what the run is asked to do.
        resume: go on with the run that is there; it must have been asked the same, but for more methods or seeds.
        about: what else must be the same when it goes on, and is noted beside the versions: the task's name (for
            whoever makes tables of the run), the data's checksum.
    """
    if resume:
        _check_same(path, config)
        before = _facts_before(path / ENVIRONMENT)
        for name, value in (about or {}).items():
            if before.get(name, value) != value:
                raise ValueError(
                    f"--resume: the run in {path} began with another {name} ({before[name][:12]}, now "
                    f"{value[:12]}); bring that back, or begin a new run with --out"
                )
        resumed = [*before.pop("resumed", []), _facts()]
        begun = stored_config(path)
        more = {name: _union(begun[name], config.get(name, ())) for name in GROWING if name in begun}
        if begun | more != begun:
            _check_complete(path, begun, config)
            write_text(path / CONFIG, dump(begun | more))
        write_text(path / ENVIRONMENT, json.dumps(before | {"resumed": resumed}, indent=2) + "\n")
        return RunFolder(path)
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; a run needs a folder")
    if path.is_dir() and any(path.iterdir()):
        holds, advice = "other files", "name a new folder"
        if (path / CONFIG).exists():
            holds, advice = "another run", "go on with it by --resume, or name a new folder"
        raise FileExistsError(f"{path} already holds {holds}: {advice} with --out. Nothing was changed")
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / CONFIG, dump(config))
        write_text(path / ENVIRONMENT, json.dumps(dict(about or {}) | _facts(), indent=2) + "\n")
    except PermissionError:
        raise PermissionError(f"{path} cannot be written to: choose another --out") from None
    return RunFolder(path)


@contextmanager
def run_in(
    path: Path, config: Mapping[str, Any], resume: bool, about: Mapping[str, str] | None = None
) -> Iterator[RunFolder]:
    """``open_run_folder``, and nobody else trains in it meanwhile: checkpoints of two would be mixed up."""
    if resume:
        stored_config(path)  # no lock where there is no run
        with locked(path / LOCK, "trained in"):
            yield open_run_folder(path, config, resume, about)
    else:
        folder = open_run_folder(path, config, resume, about)
        with locked(path / LOCK, "trained in"):
            yield folder


def _facts() -> dict[str, Any]:
    """Where and how this session runs."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return environment() | {"commit": commit(), "command": " ".join(sys.argv), "started": now}


def _facts_before(file: Path) -> dict[str, Any]:
    """What was noted when the run was begun; nothing if that note is missing or damaged."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def stored_config(path: Path) -> dict[str, Any]:
    """What the run in a folder was asked to do."""
    file = path / CONFIG
    if not file.exists():
        raise FileNotFoundError(f"{path} holds no run (there is no {CONFIG} in it)")
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"{file} is damaged: it should hold the run's settings")
    return config


def dump(config: Mapping[str, Any]) -> str:
    """Settings as YAML, in their own order."""
    text: str = yaml.safe_dump(dict(config), sort_keys=False)
    return text


def _check_same(path: Path, config: Mapping[str, Any]) -> None:
    before, now = _flat(stored_config(path)), _flat(config)
    # a setting that did not exist when the run was begun is left to its default
    different = [key for key in sorted(before) if before[key] != now.get(key) and key not in GROWING]
    if different:
        lines = "\n".join(f"  {key}: was {before.get(key)}, now {now.get(key)}" for key in different)
        raise ValueError(f"--resume goes on with the run in {path} as it was begun, but this differs:\n{lines}")


def _check_complete(path: Path, begun: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse to add trainings to a run that never said some of its settings: they would be made by others."""
    unsaid = sorted(set(_flat(config)) - set(_flat(begun)))
    if unsaid:
        raise ValueError(
            f"--resume: nothing can be added to the run in {path}, which was begun before there were "
            f"{', '.join(unsaid)}: begin a new one with --out"
        )


def _union(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Both, each once, in their order."""
    return list(dict.fromkeys([*first, *second]))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat
