"""A checkpoint goes on exactly, or is refused with the entry at fault: nothing of it is taken on trust."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from ringfence.weak import SyntheticSettings, disc_task, from_preset
from ringfence.weak.training.checkpoints import checkpoint
from ringfence.weak.training.checkpoints.checkpoint import WholeCheckpoints
from ringfence.weak.training.fit import fit
from ringfence.weak.training.module import WeakSegmentation
from ringfence.weak.training.progress import ProgressBars
from ringfence.weak.training.run_folder import OneRun

CHANGES = {
    "network.class_path": "torch.nn.Conv2d",
    "network.init_args": {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1},
    "data.size": 16,
    "data.train": 4,
    "data.validation": 2,
    "training.epochs": 2,
    "training.device": "cpu",
}
OPTIMISERS = [
    ("torch.optim.Adam", {}),
    ("torch.optim.AdamW", {"amsgrad": True}),
    ("torch.optim.SGD", {"momentum": 0.9, "nesterov": True}),
    ("torch.optim.RMSprop", {"centered": True, "momentum": 0.5}),
    ("torch.optim.Adagrad", {}),
    ("torch.optim.Adadelta", {}),
    ("torch.optim.NAdam", {}),
    ("torch.optim.LBFGS", {"max_iter": 2}),
]
SCHEDULES = [
    ("torch.optim.lr_scheduler.CosineAnnealingLR", {}),
    ("torch.optim.lr_scheduler.MultiStepLR", {"milestones": [1, 5]}),
    ("torch.optim.lr_scheduler.OneCycleLR", {"max_lr": 0.01}),
]


def settings(**changes: Any) -> SyntheticSettings:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return from_preset(SyntheticSettings, "synthetic-small", CHANGES | named)


def trained(folder: Path, asked: SyntheticSettings, method: str = "lagrangian") -> WeakSegmentation:
    with ProgressBars(Console(quiet=True), 1, 2) as bars:
        return fit(asked, disc_task(asked.data, 0), method, 0, OneRun(folder), bars)[0]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a training whose two epochs are done."""
    folder = tmp_path_factory.mktemp("kept")
    trained(folder, settings())
    content: dict[str, Any] = torch.load(folder / "last.ckpt", weights_only=True)
    return content


def moments(tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tree["optimizer_states"][0]["state"][0]
    return found


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "shape": (
        lambda tree: moments(tree).update(exp_avg=torch.zeros(1)),
        r"state.0.exp_avg is \[1\] of torch.float32",
    ),
    "dtype": (
        lambda tree: moments(tree).update(exp_avg=moments(tree)["exp_avg"].double()),
        "exp_avg is .* of torch.float64",
    ),
    "number": (lambda tree: moments(tree).update(exp_avg_sq=3.0), "exp_avg_sq is 3.0"),
    "lacks": (lambda tree: moments(tree).pop("step"), "state.0 has no step"),
    "more": (lambda tree: moments(tree).update(max_exp_avg_sq=torch.zeros(1)), "max_exp_avg_sq is"),
    "weight": (lambda tree: tree["optimizer_states"][0]["state"].update({999: {}}), "state is of weights"),
    "none": (lambda tree: tree.update(optimizer_states=[]), "it has 0 optimizer_states"),
    "group": (lambda tree: tree["optimizer_states"][0]["param_groups"][0].update(amsgrad=True), "amsgrad is True"),
    "rate": (lambda tree: tree["optimizer_states"][0]["param_groups"][0].update(lr=float("nan")), "lr is nan"),
    "missing": (lambda tree: tree.pop("loops"), "it has no loops"),
    "loop": (lambda tree: tree["loops"]["fit_loop"].pop("epoch_progress"), "fit_loop is"),
    "count": (
        lambda tree: tree["loops"]["fit_loop"]["epoch_progress"]["current"].update(ready="2"),
        "ready is '2'",
    ),
    "steps": (lambda tree: tree.update(global_step=10**6), "do not agree"),
    "epoch": (lambda tree: tree.update(epoch=-1), "epoch is -1"),
    "rows": (lambda tree: tree["callbacks"]["History"].update(rows=[]), "there are 0 rows, of 2 epochs"),
    "row": (lambda tree: tree["callbacks"]["History"]["rows"][0].update(dice="x"), "row 1 has 'x' as its 'dice'"),
    "tensor": (
        lambda tree: tree["state_dict"].update({"network.temperature": 1.0}),
        "'network.temperature' is no tensor",
    ),
    "nan": (
        lambda tree: tree["state_dict"]["network.temperature"].fill_(float("nan")),
        "temperature is not finite",
    ),
    "gone": (lambda tree: tree["state_dict"].pop("network.offset"), "state_dict has no network.offset"),
    "extra": (lambda tree: tree["state_dict"].update(stranger=torch.zeros(2)), "state_dict has 'stranger'"),
    "fence": (lambda tree: tree["state_dict"].update({"fence.header": torch.zeros(3)}), "fence"),
    "fence's": (
        lambda tree: tree["state_dict"].update({"fence.steps": torch.tensor(2.0)}),
        "fence.steps is .* of torch.float32",
    ),
    "monitor": (lambda tree: tree["state_dict"].update({"monitor._extra_state": torch.zeros(2, 2)}), "monitor"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, kept: dict[str, Any], tmp_path: Path) -> None:
    """D11: tracebacks, and with moments of another shape the process ended."""
    damage, says = DAMAGE[name]
    tree = copy.deepcopy(kept)
    damage(tree)
    torch.save(tree, tmp_path / "last.ckpt")
    before = (tmp_path / "last.ckpt").read_bytes()
    with pytest.raises(ValueError, match=rf"last.ckpt is damaged \(.*{says}.*\): remove it to train this method"):
        trained(tmp_path, settings())
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_no_file_is_removed_because_a_checkpoint_names_it(kept: dict[str, Any], tmp_path: Path) -> None:
    """Lightning's ModelCheckpoint removes the files that its state names once better ones are there."""
    tree = copy.deepcopy(kept)
    (tmp_path / "run").mkdir()
    for victim in (tmp_path / "precious", tmp_path / "run" / "precious"):
        victim.write_text("x")
        for name, state in tree["callbacks"].items():
            if name.startswith("ModelCheckpoint"):
                state.update(
                    best_model_path=str(victim), last_model_path=str(victim), best_k_models={str(victim): 1.0}
                )
        torch.save(tree, tmp_path / "run" / "last.ckpt")
        trained(tmp_path / "run", settings(training__epochs=3))
        assert victim.exists()
        (tmp_path / "run" / "last.ckpt").unlink()


class Interrupted(Exception):  # noqa: N818
    """After the first epoch."""


def resumed_like_whole(tmp_path: Path, asked: SyntheticSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole", asked).network.state_dict()
    with monkeypatch.context() as patch:
        original = WeakSegmentation.on_train_epoch_start

        def stop(self: WeakSegmentation) -> None:
            if self.current_epoch == 1:
                raise Interrupted
            original(self)

        patch.setattr(WeakSegmentation, "on_train_epoch_start", stop)
        with pytest.raises(Interrupted):
            trained(tmp_path / "parts", asked)
    parts = trained(tmp_path / "parts", asked).network.state_dict()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize(("name", "arguments"), OPTIMISERS)
def test_any_optimiser_goes_on_exactly(
    name: str, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed_like_whole(tmp_path, settings(optimiser__class_path=name, optimiser__init_args=arguments), monkeypatch)


@pytest.mark.parametrize(("name", "arguments"), SCHEDULES)
def test_any_schedule_goes_on_exactly(
    name: str, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed_like_whole(tmp_path, settings(schedule__class_path=name, schedule__init_args=arguments), monkeypatch)


def test_a_schedule_s_state_is_checked(tmp_path: Path) -> None:
    """D11: torch takes whatever is there for the schedule's attributes."""
    asked = settings(schedule__class_path="torch.optim.lr_scheduler.StepLR", schedule__init_args={"step_size": 1})
    trained(tmp_path, asked)
    longer = settings(
        training__epochs=3,
        schedule__class_path="torch.optim.lr_scheduler.StepLR",
        schedule__init_args={"step_size": 1},
    )
    tree = torch.load(tmp_path / "last.ckpt", weights_only=True)
    for changes in ({"step_size": 0}, {"optimizer": 3}, {"last_epoch": "x"}, {"base_lrs": []}, {"gamma": None}):
        torch.save(tree | {"lr_schedulers": [tree["lr_schedulers"][0] | changes]}, tmp_path / "last.ckpt")
        with pytest.raises(ValueError, match="last.ckpt is damaged .lr_schedulers"):
            trained(tmp_path, longer)


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Checkpoints are packed and written once this is set."""
    event, write = threading.Event(), checkpoint._write

    def written_late(content: dict[str, Any], path: Path) -> None:
        assert event.wait(60.0)
        write(content, path)

    monkeypatch.setattr(checkpoint, "_write", written_late)
    return event


def test_what_is_written_while_training_goes_on_is_what_it_was(tmp_path: Path, go_on: threading.Event) -> None:
    keeper, file = WholeCheckpoints(), tmp_path / "last.ckpt"
    weight, rows = torch.arange(6.0).view(2, 3), [{"epoch": 1.0}]
    keeper.save_checkpoint({"state": {"a": weight, "b": weight[:1]}, "rows": rows, "n": torch.tensor(3)}, file)
    weight.fill_(7.0)
    rows[0]["epoch"] = 2.0
    rows.append({"epoch": 3.0})
    go_on.set()
    keeper.teardown()
    found = torch.load(file, weights_only=True)
    assert found["rows"] == [{"epoch": 1.0}]
    assert torch.equal(found["state"]["a"], torch.arange(6.0).view(2, 3))
    assert torch.equal(found["state"]["b"], torch.arange(3.0).view(1, 3))
    assert int(found["n"]) == 3


def test_who_interrupts_the_wait_for_a_checkpoint_waits_for_it_at_the_end(
    tmp_path: Path, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, file = WholeCheckpoints(), tmp_path / "last.ckpt"
    keeper.save_checkpoint({"epoch": 1}, file)

    def interrupted(self: Any, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keeper.teardown()
    go_on.set()
    keeper.teardown()
    assert torch.load(file, weights_only=True) == {"epoch": 1}


def test_a_checkpoint_is_removed_once_the_next_is_there(tmp_path: Path, go_on: threading.Event) -> None:
    keeper, old, new = WholeCheckpoints(), tmp_path / "old.ckpt", tmp_path / "new.ckpt"
    old.write_bytes(b"old")
    keeper.save_checkpoint({"epoch": 2}, new)
    threading.Timer(0.2, go_on.set).start()
    assert not new.exists()
    keeper.remove_checkpoint(old)
    assert new.exists()
    assert not old.exists()


def test_an_error_of_a_checkpoint_comes_with_the_next_or_at_the_end(tmp_path: Path) -> None:
    keeper, file = WholeCheckpoints(), tmp_path / "a file" / "last.ckpt"
    file.parent.write_text("in the way")
    keeper.save_checkpoint({"epoch": 1}, file)
    with pytest.raises(OSError, match=r"last.ckpt cannot be written: it would be inside a file"):
        keeper.save_checkpoint({"epoch": 2}, file)
    keeper.save_checkpoint({"epoch": 3}, file)
    with pytest.raises(OSError, match=r"last.ckpt cannot be written"):
        keeper.teardown()
    keeper.teardown()
