"""last.ckpt, as a resumed training reads it: what goes on must be what was kept."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console

from faults.reader import Reader, expect
from faults.readers.models import damaged_pt
from ringfence.weak import SyntheticSettings, disc_task, from_preset
from ringfence.weak.training.fit import fit
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun

CHANGES = {
    "network.class_path": "torch.nn.Conv2d",
    "network.init_args": {"kernel_size": 3, "padding": 1},
    "data.size": 16,
    "data.train": 4,
    "data.validation": 2,
    "training.epochs": 2,
    "training.device": "cpu",
    "lagrangian.unit": "relative",
}
METHODS = ("lagrangian", "log_barrier")


class Checkpoint(Reader):
    """Through ``fit``: all epochs are done, so that only what reads the checkpoint runs."""

    name: ClassVar[str] = "checkpoint"
    count: ClassVar[int] = 20_000

    def prepare(self, folder: Path) -> None:
        self.settings = from_preset(SyntheticSettings, "synthetic-small", CHANGES)
        self.task = disc_task(self.settings.data, 0)
        self.inputs = []
        for method in METHODS:
            (folder / method).mkdir()
            self._fit(folder / method, method)
            data = (folder / method / "last.ckpt").read_bytes()
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            self.inputs.append((method, torch.load(io.BytesIO(data), weights_only=True), data, members))

    def _fit(self, folder: Path, method: str) -> Any:
        with ProgressBars(Console(quiet=True), 1, 2) as bars:
            return fit(self.settings, self.task, method, 0, OneRun(folder), bars)

    @property
    def valid(self) -> int:
        return len(self.inputs)

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        method, tree, data, members = self.inputs[number] if number < self.valid else rng.choice(self.inputs)
        path = folder / method / "last.ckpt"
        path.parent.mkdir()
        path.write_bytes(data if number < self.valid else damaged_pt(rng, tree, data, members))
        return path

    def read(self, path: Path) -> Any:
        return self._fit(path.parent, path.parent.name)

    def check(self, path: Path, found: Any) -> str | None:
        module, history = found
        state = {name: tensor.cpu() for name, tensor in module.state_dict().items()}
        try:
            kept = torch.load(path, weights_only=True)["state_dict"]
        except Exception:  # it is stricter about zips: then it must be the valid file but for the zip
            kept = next(tree for method, tree, *_ in self.inputs if method == path.parent.name)["state_dict"]
        expect(set(kept) >= {name for name in state if name.startswith("network.")}, "weights are missing")
        for name, tensor in state.items():
            if name in kept:
                expect(tensor.shape == kept[name].shape and torch.equal(tensor, kept[name]), f"{name} differs")
                expect(
                    not tensor.is_floating_point() or torch.isfinite(tensor).all() or "monitor" in name,
                    f"{name} is not finite",
                )
        expect(len(history.rows) == 2, f"{len(history.rows)} epochs")
        return None
