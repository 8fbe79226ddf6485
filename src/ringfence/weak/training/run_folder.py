"""A run's folder: what was asked, where it ran, what came out. Nothing in it is ever overwritten by another run."""

from __future__ import annotations

import html
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import yaml

from ringfence.documents import read_json, read_yaml
from ringfence.environment import commit, environment
from ringfence.files import WriteFailed, write_text
from ringfence.folders import content, locked
from ringfence.hints import one_line
from ringfence.weak.ranks.world import from_all, is_first, ranks
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training.refinement import RefinementSettings
from ringfence.weak.training.settings import AugmentSettings, TrainingSettings

CONFIG: Final = "config.yaml"
ENVIRONMENT: Final = "environment.json"
METRICS: Final = "metrics.csv"
RESULT: Final = "result.json"
PICTURES_FILE: Final = "pictures.safetensors"
CHECKPOINT: Final = "last.ckpt"
TASK: Final = "task"
CONSTRAINTS: Final = "constraints."
GROWING: Final = ("methods", "seeds")
"""What can be added to a run when it goes on; what it was begun with stays."""
LENGTH: Final = "training.epochs"
"""What can grow when it goes on."""
HOW: Final = (
    *("training.device", "training.devices", "training.nodes", "training.accumulate", "training.keep_checkpoint"),
    *("data.streamed", "data.workers"),
)
"""How a run is done, and not what: another machine may go on with it."""


@dataclass(frozen=True)
class OneRun:
    """The part of the folder that one method's training with one seed has to itself."""

    path: Path

    @property
    def finished(self) -> bool:
        """Whether it trained to its end: the result is written last."""
        return (self.path / RESULT).exists()

    def finished_after(self, epochs: int) -> bool:
        """Whether it trained for so many epochs, or more.

        Raises:
            ValueError: it ended earlier, and nothing was kept that it could go on from.
        """
        done = _result(self.path / RESULT).get("epochs") if self.finished else None
        if not isinstance(done, int) or done >= epochs:
            return self.finished
        if self.checkpoint is None:
            raise ValueError(
                f"{self.path} has finished its {done} epochs, and cannot go on to {epochs}: its checkpoint was not "
                "kept. Train anew with --out, and with --training.keep_checkpoint true if it may go on later"
            )
        return False

    @property
    def result(self) -> dict[str, Any]:
        """What it reached: its method, seed, epochs, and the last epoch's measures."""
        return _result(self.path / RESULT)

    @property
    def checkpoint(self) -> Path | None:
        """Where to go on from, if it began."""
        path = self.path / CHECKPOINT
        return path if path.exists() else None

    def finish(self, result: Mapping[str, Any], keep_checkpoint: bool = False) -> None:
        """Write the result, null where a number is undefined; remove the checkpoint, unless it is to be kept."""
        last = {name: value if math.isfinite(value) else None for name, value in result["last_epoch"].items()}
        write_text(self.path / RESULT, json.dumps({**result, "last_epoch": last}, indent=2) + "\n")
        if not keep_checkpoint:
            self.tidy()

    def tidy(self) -> None:
        """Remove the checkpoint of a finished training: a kill may have come between its result and that."""
        if self.finished and self.checkpoint:
            try:
                self.checkpoint.unlink()
            except OSError as error:
                raise WriteFailed(self.path / CHECKPOINT, error) from error


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
        return [_result(file) for file in sorted(self.path.glob(f"seed-*/*/{RESULT}"))]

    def __str__(self) -> str:
        lines = [" ".join(f"{cell:<21}" for cell in row).rstrip() for row in self._rows()]
        return "\n".join([f"Comparison {self.path}", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows()
        )
        return f"<p>{html.escape(str(self.path))}</p><table>{lines}</table>"

    def _rows(self) -> list[list[str]]:
        """The method, the seed and what the last epoch measured."""
        names = ("dice", "satisfaction", "stability")
        rows = [["method", "seed", *names]]
        for one in self.results:
            last = one.get("last_epoch", {})
            rows.append(
                [one_line(one["method"]), str(one["seed"]), *(f"{last.get(name, math.nan):.3f}" for name in names)]
            )
        return rows


@contextmanager
def run_in(
    path: Path, config: Mapping[str, Any], resume: bool, about: Mapping[str, str] | None = None
) -> Iterator[RunFolder]:
    """Begin a run in a new folder, or go on in that of an interrupted one; nobody else trains in it meanwhile.

    Nothing is written before the folder is locked. Of several ranks the first does all that, and the others wait.

    Args:
        path: the folder.
        config: what the run is asked to do.
        resume: go on with the run that is there; it must have been asked the same, but for more methods or seeds.
        about: what else must be the same when it goes on, and is noted beside the versions: the task's name (for
            whoever makes tables of the run), the data's checksum.
    """
    if resume:
        stored_config(path)  # no lock where there is no run
    if not is_first():
        from_all(None)
        yield RunFolder(path)
        return
    with locked(path, "trained in"):
        if resume:
            _go_on(path, config, dict(about or {}))
        else:
            _begin(path, config, dict(about or {}))
        from_all(None)
        yield RunFolder(path)


def _begin(path: Path, config: Mapping[str, Any], about: dict[str, Any]) -> None:
    """Write what is asked last of all: a folder without it is not a run, and can be begun in again."""
    there = [file for file in content(path) if not _begun(file)]
    if there:
        holds, advice = "other files", "name a new folder"
        if (path / CONFIG).exists():
            holds, advice = "another run", "go on with it by --resume, or name a new folder"
        raise FileExistsError(f"{path} already holds {holds}: {advice} with --out. Nothing was changed")
    write_text(path / ENVIRONMENT, json.dumps(about | _facts(), indent=2) + "\n")
    write_text(path / CONFIG, dump(config))


def _go_on(path: Path, config: Mapping[str, Any], about: dict[str, Any]) -> None:
    _check_same(path, config)
    before = _facts_before(path / ENVIRONMENT) or _facts()
    for name, value in about.items():
        if before.get(name, value) != value:
            raise ValueError(
                f"--resume: the run in {path} began with another {name} ({str(before[name])[:12]}, now "
                f"{value[:12]}); bring that back, or begin a new run with --out"
            )
    resumed = before.pop("resumed", [])
    resumed = [*(resumed if isinstance(resumed, list) else []), _facts()]
    begun = stored_config(path)
    more = {name: _union(begun[name], config.get(name, ())) for name in GROWING if name in begun}
    if begun | more != begun:
        _check_complete(path, begun, config)
    longer = {"training": begun["training"] | {"epochs": flat(config)[LENGTH]}} if LENGTH in flat(begun) else {}
    if begun | more | longer != begun:
        write_text(path / CONFIG, dump(begun | more | longer))
    # if that note was lost, nobody knows the checksums that the data had; the task is the same
    task = {name: value for name, value in about.items() if name == TASK}
    write_text(path / ENVIRONMENT, json.dumps(task | before | {"resumed": resumed}, indent=2) + "\n")


def _begun(file: Path) -> bool:
    """Whether a run that was killed before it said what was asked left this; or an older one on a full disk."""
    if file.name not in (CONFIG, ENVIRONMENT) or not file.is_file():
        return False
    return file.stat().st_size == 0 or (file.name == ENVIRONMENT and "started" in _facts_before(file))


def _facts() -> dict[str, Any]:
    """Where and how this session runs."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return environment() | {"commit": commit(), "command": " ".join(sys.argv), "processes": ranks(), "started": now}


def _facts_before(file: Path) -> dict[str, Any]:
    """What was noted when the run was begun; nothing if that note is missing or damaged."""
    try:
        facts = read_json(file)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def stored_config(path: Path) -> dict[str, Any]:
    """What the run in a folder was asked to do."""
    file = path / CONFIG
    if not file.exists():
        raise FileNotFoundError(f"{path} holds no run (there is no {CONFIG} in it)")
    try:
        config = read_yaml(file)
    except ValueError as error:
        raise ValueError(f"{file} is damaged; it should hold the run's settings: {error}") from None
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise ValueError(f"{file} is damaged: it should hold the run's settings")
    for name in GROWING:
        if not isinstance(config.get(name, []), list):
            raise ValueError(f"{file} is damaged: {name} should be a list")
    return config


def _result(file: Path) -> dict[str, Any]:
    """What a training reached."""
    result = read_json(file)
    numbers = result.get("last_epoch") if isinstance(result, dict) else None
    if (
        not isinstance(numbers, dict)
        or not all(value is None or isinstance(value, (int, float)) for value in numbers.values())
        or not isinstance(result.get("method"), str)
        or not isinstance(result.get("seed"), int)
    ):
        raise ValueError(f"{file} is damaged: it should hold a training's method, seed and last_epoch")
    defined = {name: math.nan if value is None else value for name, value in numbers.items()}
    return {**result, "last_epoch": defined}


def dump(config: Mapping[str, Any]) -> str:
    """Settings as YAML, in their own order."""
    text: str = yaml.safe_dump(dict(config), sort_keys=False)
    return text


def _check_same(path: Path, config: Mapping[str, Any]) -> None:
    before, now = flat(stored_config(path)), flat(config)
    # a setting that did not exist when the run was begun is left to its default
    may_differ = (*GROWING, *HOW, *([LENGTH] if _longer(before.get(LENGTH), now.get(LENGTH)) else []))
    different = [key for key in sorted(before) if before[key] != now.get(key) and key not in may_differ]
    if any(key.startswith(CONSTRAINTS) for key in before):  # one that is new would be another training
        different += sorted(key for key in now if key.startswith(CONSTRAINTS) and key not in before)
    unsaid = _defaults()
    different += sorted(key for key in now.keys() & unsaid - before.keys() if now[key] != unsaid[key])
    if different:
        lines = "\n".join(
            f"  {key}: was {before.get(key, unsaid.get(key))}, now {now.get(key)}" for key in different
        )
        raise ValueError(f"--resume goes on with the run in {path} as it was begun, but this differs:\n{lines}")


def _defaults() -> dict[str, Any]:
    """Of settings that a run may have been begun without, because there were none."""
    return flat(
        {
            "data": asdict(BoxDataSettings()),
            "training": asdict(TrainingSettings()),
            "augment": asdict(AugmentSettings()),
            "refinement": asdict(RefinementSettings()),
        }
    )


def _check_complete(path: Path, begun: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse to add trainings to a run that never said some of its settings: they would be made by others."""
    unsaid = sorted(set(flat(config)) - set(flat(begun)) - set(HOW))
    if unsaid:
        raise ValueError(
            f"--resume: nothing can be added to the run in {path}, which was begun before there were "
            f"{', '.join(unsaid)}: begin a new one with --out"
        )


def _union(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Both, each once, in their order."""
    return list(dict.fromkeys([*first, *second]))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return found


def _longer(before: Any, now: Any) -> bool:
    return isinstance(before, int) and isinstance(now, int) and now > before
