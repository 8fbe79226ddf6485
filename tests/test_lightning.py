"""FenceCallback in both Lightning namespaces: steps, logs, best feasible checkpoints, resume, two ranks."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import lightning.pytorch
import pytest
import pytorch_lightning
import torch

import ringfence as rf
from children import python
from lightning_modules import loader, module, trainer
from ringfence.lightning import FenceCallback, log_epoch

# Lightning itself, on this torch and at this size
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed from"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
]


@pytest.fixture(params=[pytorch_lightning, lightning.pytorch], ids=["pytorch_lightning", "lightning.pytorch"])
def pl(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_steps_each_epoch_and_logs_the_monitor(pl: ModuleType, tmp_path: Path) -> None:
    model = module(pl, rf.LogBarrier(t=2.0, mu=2.0))
    run = trainer(pl, tmp_path, FenceCallback(), 3)  # a single callback: where the namespaces differ
    run.fit(model, loader(), loader())
    assert model.t_seen == [2.0] * 4 + [4.0] * 4 + [8.0] * 4
    assert model.fence.t == 16.0
    assert run.callback_metrics["fence/t"].item() == 8.0  # what the last epoch was trained with
    f = model.limits(loader().dataset.tensors[1]).f
    assert run.callback_metrics["fence/satisfaction"].item() == pytest.approx((f <= 0).double().mean().item())
    assert run.callback_metrics["fence/worst/size"].item() == pytest.approx(f.max().clamp(min=0).item(), abs=1e-6)
    assert 0.0 <= run.callback_metrics["fence/stability"].item() <= 1.0


@pytest.mark.parametrize(("accumulate", "steps"), [(1, 12), (2, 6)])
def test_steps_each_iteration_if_asked(pl: ModuleType, tmp_path: Path, accumulate: int, steps: int) -> None:
    """Three epochs of four batches; where gradients are accumulated, after each step of the optimiser."""
    model = module(pl, rf.LogBarrier(t=2.0, mu=1.25))
    trainer(pl, tmp_path, FenceCallback(every="step"), 3, accumulate_grad_batches=accumulate).fit(
        model, loader(), loader()
    )
    assert model.fence.steps == steps
    expected = [2.0 * 1.25 ** (batch // accumulate) for batch in range(12)]
    assert model.t_seen == pytest.approx(expected)
    with pytest.raises(ValueError, match="every must be 'epoch' or 'step', got 'batch'"):
        FenceCallback(every="batch")


def test_the_sanity_check_is_no_epoch(pl: ModuleType, tmp_path: Path) -> None:
    seen = []

    class Watch(pl.Callback):
        def on_validation_end(self, trainer: object, pl_module: object) -> None:
            if not trainer.sanity_checking:
                seen.append(trainer.callback_metrics["fence/stability"].item())

    run = trainer(pl, tmp_path, [FenceCallback(), Watch()], 2, num_sanity_val_steps=2)
    run.fit(module(pl, rf.LogBarrier()), loader(), loader())
    assert math.isnan(seen[0])
    assert not math.isnan(seen[1])


@pytest.mark.parametrize(("mode", "kept"), [("max", 3), ("min", 0)])
def test_keeps_the_best_score_only(pl: ModuleType, tmp_path: Path, mode: str, kept: int) -> None:
    keeper = FenceCallback(score="score", mode=mode, satisfaction=0.0, dirpath=tmp_path)
    trainer(pl, tmp_path, [keeper], 5).fit(
        module(pl, rf.LogBarrier(), [1.0, 4.0, 2.0, 5.0, 3.0]), loader(), loader()
    )
    assert [path.name for path in tmp_path.glob("*.ckpt")] == [f"best-feasible-epoch={kept:03d}.ckpt"]
    assert keeper.best_path == str(tmp_path / f"best-feasible-epoch={kept:03d}.ckpt")


def test_infeasible_epochs_are_not_kept(pl: ModuleType, tmp_path: Path) -> None:
    """Satisfaction grows as the barrier trains: the best score comes too early to be feasible."""
    history = []

    class Watch(pl.Callback):
        def on_validation_end(self, trainer: object, pl_module: object) -> None:
            if not trainer.sanity_checking:
                history.append(trainer.callback_metrics["fence/satisfaction"].item())

    scores = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    trainer(pl, tmp_path, [FenceCallback(), Watch()], 6).fit(
        module(pl, rf.LogBarrier(), scores), loader(), loader()
    )
    threshold = (min(history) + max(history)) / 2
    assert min(history) < threshold < max(history)
    keeper = FenceCallback(score="score", satisfaction=threshold, dirpath=tmp_path)
    trainer(pl, tmp_path, [keeper], 6).fit(module(pl, rf.LogBarrier(), scores), loader(), loader())
    feasible = [epoch for epoch, share in enumerate(history) if share >= threshold]
    assert keeper.best_score == max(scores[epoch] for epoch in feasible) < scores[0]
    never = FenceCallback(score="score", satisfaction=1.0, dirpath=tmp_path / "never")
    trainer(pl, tmp_path, [never], 1).fit(module(pl, rf.LogBarrier(), scores), loader(), loader())
    assert never.best_path == ""
    assert not (tmp_path / "never").exists()


def test_a_checkpoint_of_another_run_is_not_overwritten(tmp_path: Path) -> None:
    pl = pytorch_lightning
    (tmp_path / "best-feasible-epoch=000.ckpt").write_text("precious")
    keeper = FenceCallback(score="score", satisfaction=0.0, dirpath=tmp_path)
    trainer(pl, tmp_path, [keeper], 1).fit(module(pl, rf.LogBarrier(), [1.0]), loader(), loader())
    assert (tmp_path / "best-feasible-epoch=000.ckpt").read_text() == "precious"
    assert Path(keeper.best_path).name == "best-feasible-epoch=000-v1.ckpt"


@pytest.mark.parametrize("every", [2, 4])
@pytest.mark.parametrize(
    "make",
    [lambda: rf.LogBarrier(t=2.0, mu=2.0), lambda: rf.Lagrangian(dual_lr=0.5)],
    ids=["barrier", "Lagrangian"],
)
def test_resumes_from_a_checkpoint_of_any_batch(pl: ModuleType, tmp_path: Path, make, every: int) -> None:
    """Also of an epoch's last one, when its step has not been taken yet; and from mid-epoch, with a table that grows."""

    def fit(epochs: int, folder: str, checkpoint: str | None = None) -> object:
        model = module(pl, make())
        saving = pl.callbacks.ModelCheckpoint(tmp_path / folder, "{step}", every_n_train_steps=every, save_top_k=-1)
        run = trainer(pl, tmp_path, [FenceCallback(), saving], epochs, enable_checkpointing=True)
        run.fit(model, loader(), loader(), ckpt_path=checkpoint)
        return model

    whole = fit(3, "whole")
    for path in sorted((tmp_path / "whole").glob("*.ckpt")):
        resumed = fit(3, f"from-{path.stem}", str(path))
        assert resumed.fence.steps == whole.fence.steps == 3, path.name
        if every == 2:  # Lightning itself does not go on in mid-epoch with the very same batches
            continue
        for key, value in whole.fence.state_dict().items():
            torch.testing.assert_close(resumed.fence.state_dict()[key], value, msg=f"{path.name} {key}")


@pytest.mark.parametrize("saved", ["after the epoch", "during validation"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: rf.LogBarrier(t=2.0, mu=2.0),
        lambda: rf.Lagrangian(dual_lr=0.5),
        lambda: rf.Lagrangian(dual_optimiser=partial(rf.NuPI, lr=0.5, kp=2.0)),
    ],
    ids=["barrier", "Lagrangian", "nuPI"],
)
def test_resumes_identically(pl: ModuleType, tmp_path: Path, make, saved: str) -> None:
    """Whether the checkpoint was taken before or after the fence's step of its epoch."""

    def fit(epochs: int, **options: object) -> tuple[object, object]:
        model, keeper = (
            module(pl, make(), [3.0, 2.0, 1.0, 0.5]),
            FenceCallback(score="score", satisfaction=0.0, dirpath=tmp_path),
        )
        callbacks = [keeper]
        if saved == "after the epoch":
            callbacks.append(
                pl.callbacks.ModelCheckpoint(tmp_path / "kept", save_last=True, save_on_train_epoch_end=True)
            )
        run = trainer(pl, tmp_path, callbacks, epochs, enable_checkpointing=len(callbacks) > 1)
        run.fit(model, loader(), loader(), **options)
        return model, keeper

    straight, _ = fit(4)
    for old in tmp_path.rglob("*.ckpt"):
        old.unlink()
    _, keeper = fit(1)
    path = tmp_path / "kept" / "last.ckpt" if saved == "after the epoch" else keeper.best_path
    resumed, keeper = fit(4, ckpt_path=path, weights_only=True)
    for key, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key
    assert keeper.best_score == 3.0  # it remembers the best of before


@pytest.mark.parametrize(
    ("fence", "monitor", "options", "message"),
    [
        (False, False, {}, "found neither fence nor monitor in Fenced: make it an attribute, as in self.fence"),
        (True, False, {"score": "score"}, "needs a monitor to tell what is feasible, and Fenced has none"),
        (True, True, {"score": "dice"}, "no metric 'dice' was logged; there are: fence/satisfaction.*score"),
    ],
)
def test_misuse(pl: ModuleType, tmp_path: Path, fence: bool, monitor: bool, options: dict, message: str) -> None:
    model = module(pl, rf.LogBarrier())
    if not fence:
        model.fence = torch.nn.Identity()
    if not monitor:
        model.monitor = torch.nn.Identity()
    with pytest.raises(ValueError, match=message):
        trainer(pl, tmp_path, [FenceCallback(**options)], 1, num_sanity_val_steps=0).fit(model, loader(), loader())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "best"}, "mode must be 'max' or 'min'"), ({"satisfaction": 95}, "a share from 0 to 1, got 95")],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FenceCallback(**options)


def test_a_callback_may_serve_another_run(tmp_path: Path) -> None:
    """Cross-validation: the same callback object with a fresh trainer and model each time."""
    pl, keeper = pytorch_lightning, FenceCallback(score="score", satisfaction=0.0, dirpath=tmp_path)
    for best in (5.0, 2.0):
        model = module(pl, rf.LogBarrier(t=2.0, mu=2.0), [1.0, best])
        trainer(pl, tmp_path, [keeper], 2).fit(model, loader(), loader())
        assert model.fence.t == 8.0
        assert keeper.best_score == best


def test_a_run_resumed_with_the_callback_added_is_not_stepped_twice(tmp_path: Path) -> None:
    pl = pytorch_lightning
    model = module(pl, rf.LogBarrier(t=2.0, mu=2.0))
    run = trainer(pl, tmp_path, [], 1)
    run.fit(model, loader(), loader())
    model.fence.step()  # by hand
    run.save_checkpoint(tmp_path / "by_hand.ckpt", weights_only=False)
    resumed = module(pl, rf.LogBarrier(t=2.0, mu=2.0))
    trainer(pl, tmp_path, [FenceCallback()], 3).fit(
        resumed, loader(), loader(), ckpt_path=tmp_path / "by_hand.ckpt", weights_only=True
    )
    assert resumed.t_seen == [4.0] * 4 + [8.0] * 4


class WithTwoMonitors:
    """Feeds a second monitor: in validation with other limits, or in training."""

    def __init__(self, feed_in: str, satisfied: bool) -> None:
        self.feed_in, self.bound = feed_in, 100.0 if satisfied else -100.0

    def into(self, model: object) -> object:
        model.second = rf.Monitor()
        step = getattr(model, f"{self.feed_in}_step")

        def feeding(batch: list[torch.Tensor]) -> object:
            model.second.update(other=rf.at_most(model.network(batch[1])[:, 0], self.bound), index=batch[0])
            return step(batch)

        setattr(model, f"{self.feed_in}_step", feeding)
        return model


@pytest.mark.parametrize("satisfied", [True, False])
def test_every_monitor_that_validation_fed_must_be_satisfied(tmp_path: Path, satisfied: bool) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="score", satisfaction=0.5, dirpath=tmp_path)
    model = WithTwoMonitors("validation", satisfied).into(module(pl, rf.LogBarrier(), [1.0] * 3))
    run = trainer(pl, tmp_path, [keeper], 3)
    run.fit(model, loader(), loader())
    assert run.callback_metrics["fence/second/satisfaction"].item() == float(satisfied)
    assert 0.5 <= run.callback_metrics["fence/monitor/satisfaction"].item() <= 1.0
    assert bool(keeper.best_path) == satisfied


def test_one_infeasible_monitor_is_enough(tmp_path: Path) -> None:
    """Whichever comes first by name: here 'monitor' fails, and 'second' after it does not."""
    pl, keeper = pytorch_lightning, FenceCallback(score="score", satisfaction=1.0, dirpath=tmp_path)
    model = WithTwoMonitors("validation", satisfied=True).into(module(pl, rf.LogBarrier(), [1.0]))
    run = trainer(pl, tmp_path, [keeper], 1)
    run.fit(model, loader(), loader())
    assert run.callback_metrics["fence/monitor/satisfaction"].item() < 1.0
    assert keeper.best_path == ""


def test_each_validation_of_an_epoch_is_judged_on_its_own(tmp_path: Path) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="score", dirpath=tmp_path)
    model = module(pl, rf.LogBarrier())
    verdicts = iter([1.0, -1.0])  # the first of two validations is infeasible, the second feasible

    class Verdicts(pl.Callback):
        def on_validation_start(self, trainer: object, pl_module: object) -> None:
            model.f = next(verdicts)

    def validation_step(batch: list[torch.Tensor]) -> None:
        model.monitor.update(size=torch.full((4,), model.f), index=batch[0])
        model.log("score", 1.0)

    model.validation_step = validation_step
    options = {"val_check_interval": 2, "num_sanity_val_steps": 0}
    trainer(pl, tmp_path, [keeper, Verdicts()], 1, **options).fit(model, loader(), loader())
    assert keeper.best_score == 1.0


def test_a_monitor_that_is_never_fed_is_pointed_out(tmp_path: Path) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="score", dirpath=tmp_path)
    model = module(pl, rf.LogBarrier(), [1.0])
    model.validation_step = lambda batch: model.log("score", 1.0)
    with pytest.warns(UserWarning, match=r"kept no checkpoint: no monitor was updated.*validation_step"):
        trainer(pl, tmp_path, [keeper], 1).fit(model, loader(), loader())


def test_a_monitor_fed_by_training_is_read_at_the_epochs_end(tmp_path: Path) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="score", satisfaction=0.1, dirpath=tmp_path)
    model = WithTwoMonitors("training", satisfied=False).into(module(pl, rf.LogBarrier(), [1.0, 2.0]))
    run = trainer(pl, tmp_path, [keeper], 2)
    run.fit(model, loader(), loader())
    assert run.callback_metrics["fence/second/satisfaction"].item() == 0.0  # all 16 samples, not the sanity check
    assert run.callback_metrics["fence/second/stability"].isnan()  # nothing was satisfied before
    assert keeper.best_score == 2.0  # judged by the monitor that validation feeds


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_without_validation_the_training_monitor_decides(tmp_path: Path) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="train_score", satisfaction=0.5, dirpath=tmp_path)
    model = WithTwoMonitors("training", satisfied=True).into(module(pl, rf.LogBarrier()))
    step = model.training_step

    def scoring(batch: list[torch.Tensor]) -> torch.Tensor:
        model.log("train_score", 7.0, on_step=False, on_epoch=True)
        return step(batch)

    model.training_step = scoring
    trainer(pl, tmp_path, [keeper], 1).fit(model, loader())
    assert keeper.best_score == 7.0
    assert Path(keeper.best_path).exists()


def test_a_test_or_validation_on_its_own_is_logged_and_leaves_no_trace(tmp_path: Path) -> None:
    pl = pytorch_lightning
    model = module(pl, rf.LogBarrier())
    model.test_step = model.validation_step
    run = trainer(pl, tmp_path, [FenceCallback()], 1)
    run.fit(model, loader(), loader())
    remembered = model.monitor.get_extra_state().clone()
    assert "fence/satisfaction" in run.test(model, loader(), verbose=False)[0]
    assert "fence/satisfaction" in run.validate(model, loader(), verbose=False)[0]
    assert torch.equal(model.monitor.get_extra_state(), remembered)
    assert not model.monitor.update_called


def test_epochs_without_validation_keep_nothing(tmp_path: Path) -> None:
    pl, keeper = pytorch_lightning, FenceCallback(score="score", satisfaction=0.0, dirpath=tmp_path)
    model = module(pl, rf.LogBarrier(t=2.0, mu=2.0), [1.0, 2.0, 3.0, 4.0])
    trainer(pl, tmp_path, [keeper], 3, check_val_every_n_epoch=2).fit(model, loader(), loader())
    assert Path(keeper.best_path).name == "best-feasible-epoch=001.ckpt"
    assert model.fence.t == 16.0


def test_several_fences_log_under_their_own_names(tmp_path: Path) -> None:
    pl = pytorch_lightning
    model = module(pl, rf.LogBarrier(t=2.0))
    model.other = rf.LogBarrier(t=7.0)
    run = trainer(pl, tmp_path, [FenceCallback()], 1)
    run.fit(model, loader(), loader())
    assert run.callback_metrics["fence/fence/t"].item() == 2.0
    assert run.callback_metrics["fence/other/t"].item() == 7.0


def test_a_logger_is_told_what_callbacks_are(pl: ModuleType, tmp_path: Path) -> None:
    """Each epoch's strengths are the same with a logger and without: there they take another way."""

    class Seen(pl.Callback):
        def __init__(self) -> None:
            self.epochs: list[dict[str, float]] = []

        def on_train_epoch_end(self, trainer: object, pl_module: object) -> None:
            told = trainer.callback_metrics.items()
            self.epochs.append({name: one.item() for name, one in told if "multiplier" in name})

    def trained(folder: Path, **options: object) -> tuple[list[dict[str, float]], dict[str, float]]:
        torch.manual_seed(0)
        seen = Seen()
        run = trainer(pl, folder, [FenceCallback(), seen], 3, **options)
        run.fit(module(pl, rf.Lagrangian(dual_lr=0.5, samples=16)), loader(), loader())
        return seen.epochs, {name: float(one) for name, one in run.logged_metrics.items() if "multiplier" in name}

    logger = pl.loggers.CSVLogger(tmp_path)
    told, logged = trained(tmp_path / "told", logger=logger, log_every_n_steps=1)
    alone, nothing = trained(tmp_path / "alone")
    assert told == alone
    assert [sorted(epoch) for epoch in alone[1:]] == [
        ["fence/max_multiplier/size", "fence/mean_multiplier/size"]
    ] * 2
    assert alone[1] != alone[2]
    assert (logged, nothing) == (alone[-1], {})


@pytest.mark.parametrize(
    ("doing", "ranks", "loggers", "at_once"),
    [("fit", 1, [], True), ("fit", 2, [], False), ("fit", 1, ["csv"], False), ("validate", 1, [], False)],
)
def test_values_take_the_short_way_only_where_nobody_else_is_told(
    doing: str, ranks: int, loggers: list[str], at_once: bool
) -> None:
    """Ranks may each have a value of their own, loggers are told by Lightning, and `validate` returns what it logged."""
    known: dict[str, torch.Tensor] = {}
    logged: list[tuple[dict[str, torch.Tensor], bool]] = []
    run = SimpleNamespace(
        state=SimpleNamespace(fn=doing), world_size=ranks, loggers=loggers, callback_metrics=known
    )
    model = SimpleNamespace(trainer=run, log_dict=lambda values, sync_dist: logged.append((values, sync_dist)))
    values = {"fence/t": torch.tensor(3.0)}
    log_epoch(model, values, sync_dist=True)
    assert (known, logged) == ((values, []) if at_once else ({}, [(values, True)]))


def test_two_ranks_agree_with_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("lightning_modules.py")
    done = python(script, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["best"] == [3.0, "best-feasible-epoch=001.ckpt"]
    assert 0.0 < first["satisfaction"] < 1.0
    multipliers = torch.tensor(first["multipliers"])
    assert (multipliers[::2] > 0).any()  # samples of either rank have some: the sampler deals them in turn
    assert (multipliers[1::2] > 0).any()
