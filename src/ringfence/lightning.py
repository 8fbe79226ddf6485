"""The fence in a Lightning trainer: stepped, its monitor logged, the best feasible model kept."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ringfence.extras import require
from ringfence.fetching import fetched
from ringfence.methods import Method

if find_spec("pytorch_lightning") is None and find_spec("lightning") is None:
    require("pytorch_lightning", "ringfence.lightning", "lightning")

from ringfence.monitor import Monitor

# `pytorch_lightning` and `lightning.pytorch` are the same code twice, and neither trainer takes the other's
# Callback everywhere. A callback that descends from both is at home in both.
if TYPE_CHECKING:
    from pytorch_lightning import Callback as _Callback
else:
    _HOMES = {"pytorch_lightning": "pytorch_lightning", "lightning": "lightning.pytorch"}
    _Callback = type(
        "_Callback",
        tuple(import_module(home).Callback for package, home in _HOMES.items() if find_spec(package)),
        {},
    )


class FenceCallback(_Callback):
    """Steps every fence each epoch or each iteration, logs every monitor, keeps the best feasible checkpoint.

    It finds the ``ringfence.Method`` and ``ringfence.Monitor`` objects that are attributes of the
    LightningModule (or deeper): there they move with it and are in its checkpoints. Your ``training_step`` calls
    the fence, your ``validation_step`` updates the monitor, and nothing else is needed. A module with a monitor
    alone, such as a baseline without limits, is measured just the same.

    A checkpoint is *feasible* if the satisfaction over all constraints reached ``satisfaction``, in every monitor
    that the validation fed (or, where validation feeds none, those that training fed); the best one is that with
    the best ``score`` among those. With several fences or monitors, each is logged under its attribute's name. With
    several validations an epoch (``val_check_interval``), stability compares one with the next.

    Once an epoch suits barriers, penalties and the paper's Lagrangians. Once an iteration (after each step of the
    optimiser, so not between batches whose gradients are accumulated) is how primal-dual methods are often run;
    rates and growth are then per iteration. Fences are looked for once an epoch.

    Args:
        score: the logged metric to choose by, such as "val_dice"; None keeps no checkpoint.
        mode: whether a high ("max") or a low ("min") score is good.
        satisfaction: the share of constraints that must hold, 0 to 1.
        dirpath: where the checkpoint goes; default: beside the trainer's other checkpoints.
        prefix: put before the name of everything logged.
        every: when fences are stepped: at each "epoch"'s end, or after each "step" of the optimiser.
    """

    def __init__(
        self,
        score: str | None = None,
        mode: Literal["max", "min"] = "max",
        satisfaction: float = 1.0,
        dirpath: str | Path | None = None,
        prefix: str = "fence/",
        every: Literal["epoch", "step"] = "epoch",
    ) -> None:
        super().__init__()
        if every not in ("epoch", "step"):
            raise ValueError(f"every must be 'epoch' or 'step', got '{every}'")
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got '{mode}'")
        if not 0.0 <= satisfaction <= 1.0:
            raise ValueError(f"satisfaction is a share from 0 to 1, got {satisfaction}")
        self.score, self.mode, self.satisfaction = score, mode, satisfaction
        self.dirpath, self.prefix, self.every = dirpath, prefix, every
        self._steps_before = 0
        self._begin()

    def _begin(self) -> None:
        """Nothing kept yet."""
        self.best_score: float | None = None
        self.best_path: str = ""
        self._feasible: bool | None = None  # None: no monitor has said anything yet
        self._judged = False
        self._fed_in_training: set[str] = set()
        self._stepped: int | None = None  # epochs whose step was taken; None until training begins
        self._known: list[Method] | None = None  # the fences, while an epoch lasts

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse a module that has nothing to step, or nothing to judge feasibility by."""
        if stage != "fit":
            return
        self._known = None
        if trainer.current_epoch == 0:
            self._begin()  # perhaps another run with the same callback; a resumed one loads its state after this
        if not _fences(pl_module) and not _monitors(pl_module):
            raise ValueError(
                f"FenceCallback found neither fence nor monitor in {type(pl_module).__name__}: make it an "
                "attribute, as in self.fence = rf.LogBarrier(...)"
            )
        if self.score is not None and not _monitors(pl_module):
            raise ValueError(
                f"FenceCallback(score='{self.score}') needs a monitor to tell what is feasible, and "
                f"{type(pl_module).__name__} has none: make it an attribute, as in self.monitor = rf.Monitor()"
            )

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """The sanity check is not an epoch: nothing of it may count towards stability."""
        for monitor in _monitors(pl_module).values():
            monitor.clear()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """No monitor has judged this epoch yet; and fences may be others than in the last one."""
        self._feasible = self._known = None

    def _catch_up(self, trainer: Any, pl_module: Any) -> None:
        """Take a step that the checkpoint was too early for: after an epoch's last batch, and before its end."""
        if self.every == "epoch" and self._stepped is not None and self._stepped < trainer.current_epoch:
            self._step(pl_module)
            self._stepped = trainer.current_epoch

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Tell the monitors that training feeds, which are not validation's to read, from the others."""
        self._fed_in_training = self._fed(trainer, pl_module)
        self._feasible = None  # an epoch may have several validations, each with its own verdict

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what the validation pass measured."""
        if not trainer.sanity_checking:
            self._log_monitors(trainer, pl_module, self._fed(trainer, pl_module) - self._fed_in_training)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep this model if it is feasible and better than the best so far (all scores are logged by now)."""
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._keep_if_best(trainer)

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what the test measured."""
        self._log_monitors(trainer, pl_module, self._fed(trainer, pl_module))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note where the optimiser stands; before an epoch's first batch, take a step that was missed."""
        self._steps_before = trainer.global_step
        if self._stepped is None:
            self._stepped = trainer.current_epoch
        self._catch_up(trainer, pl_module)  # here, since a resumed run has no epoch's start

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """With ``every="step"``, step the fences where the optimiser took one."""
        if self.every == "step" and trainer.global_step > self._steps_before:
            self._step(pl_module)

    def _step(self, pl_module: Any) -> None:
        if self._known is None:  # looking for them takes longer than a step of theirs
            self._known = list(_fences(pl_module).values())
        for fence in self._known:
            fence.step()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log monitors fed by training, and the fences; then step the fences, if they are stepped by epoch."""
        judged_by_validation = self._feasible is not None
        self._log_monitors(trainer, pl_module, self._fed(trainer, pl_module))
        fences = _fences(pl_module)
        for name, fence in fences.items():
            self._log(trainer, pl_module, name, {key: torch.tensor(one) for key, one in fence.summary().items()})
        self._known = list(fences.values())
        # Lightning comes here once an epoch, also for one whose checkpoint was taken during its validation
        if self.every == "epoch":
            self._step(pl_module)
        self._known = None
        self._stepped = trainer.current_epoch + 1
        if not judged_by_validation:
            self._keep_if_best(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Say so if nothing could have been kept, because no monitor was ever updated."""
        self._catch_up(trainer, pl_module)
        self._known = None
        if self.score is not None and not self._judged:
            warnings.warn(
                f"FenceCallback(score='{self.score}') kept no checkpoint: no monitor was updated, so no epoch "
                "could be feasible. Call self.monitor.update(...) in validation_step",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """The best so far; fences and monitors are in the module's state."""
        return {"best_score": self.best_score, "best_path": self.best_path, "stepped": self._stepped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up where a checkpoint left."""
        self.best_score, self.best_path = state_dict["best_score"], state_dict["best_path"]
        self._stepped = state_dict.get("stepped")

    def _fed(self, trainer: Any, pl_module: Any) -> set[str]:
        """The monitors that have been updated; asked of all ranks, since one without data must compute, too."""
        decide = trainer.strategy.reduce_boolean_decision
        return {name for name, one in _monitors(pl_module).items() if decide(one.update_called, all=False)}

    def _log_monitors(self, trainer: Any, pl_module: Any, names: set[str]) -> None:
        monitors = _monitors(pl_module)
        for name in sorted(names):
            measures = monitors[name].compute()
            values = dict(zip(measures, fetched(*measures.values()), strict=True))
            self._log(trainer, pl_module, name, values)
            self._judged = True
            enough = float(values["satisfaction"]) >= self.satisfaction
            self._feasible = enough and self._feasible is not False
            if trainer.state.fn == "fit":
                monitors[name].reset()
            else:  # a validation or test on its own is not an epoch
                monitors[name].clear()

    def _log(self, trainer: Any, pl_module: Any, name: str, values: Mapping[str, Tensor]) -> None:
        """Log what is known on the CPU, from there: whoever reads it need not wait for a GPU, value by value."""
        if trainer.world_size > 1:  # ranks speak to each other by their devices
            values = {key: one.to(pl_module.device) for key, one in values.items()}
        log_epoch(pl_module, {f"{self.prefix}{name}{key}": one for key, one in values.items()}, sync_dist=True)

    def _keep_if_best(self, trainer: Any) -> None:
        if self.score is None or self._feasible is None or trainer.fast_dev_run:
            return
        if self.score not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics)) or "none"
            raise ValueError(f"FenceCallback: no metric '{self.score}' was logged; there are: {known}")
        score = float(trainer.callback_metrics[self.score])
        best = self.best_score
        better = best is None or (score > best if self.mode == "max" else score < best)
        if self._feasible and better and score == score:  # a NaN is no score
            self._keep(trainer, score)

    def _keep(self, trainer: Any, score: float) -> None:
        """Save the new best, and only then remove the old one."""
        path, old = self._new_path(trainer), self.best_path
        self.best_score, self.best_path = score, path
        trainer.save_checkpoint(path, weights_only=False)
        if old and old != path:
            trainer.strategy.remove_checkpoint(old)

    def _new_path(self, trainer: Any) -> str:
        folder = self.dirpath or getattr(trainer.checkpoint_callback, "dirpath", None)
        folder = folder or os.path.join(trainer.log_dir or trainer.default_root_dir, "checkpoints")
        stem = os.path.join(folder, f"best-feasible-epoch={trainer.current_epoch:03d}")
        path, version = f"{stem}.ckpt", 0
        while os.path.exists(path) and path != self.best_path:  # another run's: never overwritten
            version += 1
            path = f"{stem}-v{version}.ckpt"
        return str(trainer.strategy.broadcast(path))


def log_epoch(pl_module: Any, values: Mapping[str, Tensor], sync_dist: bool = False) -> None:
    """``log_dict`` of an epoch's values, on the shortest way where none but callbacks are told.

    Lightning's takes longer for a value than a dual step. Where there is neither logger nor other rank, it ends
    where LearningRateMonitor puts its values at once.

    Args:
        pl_module: which logs.
        values: by name, at the end of an epoch or of its validation.
        sync_dist: whether ranks take the mean.
    """
    trainer = pl_module.trainer
    if trainer.state.fn == "fit" and trainer.world_size == 1 and not trainer.loggers:
        trainer.callback_metrics.update(values)
    else:
        pl_module.log_dict(values, sync_dist=sync_dist)


def _fences(pl_module: torch.nn.Module) -> dict[str, Method]:
    return _named(pl_module, Method)


def _monitors(pl_module: torch.nn.Module) -> dict[str, Monitor]:
    return _named(pl_module, Monitor)


def _named(pl_module: torch.nn.Module, kind: type) -> dict[str, Any]:
    """The parts of that kind, by what is put before their values' names: nothing if there is only one."""
    found = {name: module for name, module in pl_module.named_modules() if isinstance(module, kind)}
    return {"" if len(found) == 1 else f"{name}/": module for name, module in found.items()}
