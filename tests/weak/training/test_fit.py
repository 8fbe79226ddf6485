"""How a training is ended from outside, by Ctrl-C or by SIGTERM, each as what it is; and what it computes in."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from torch import Tensor, nn

from prepared_sets import make_prepared
from ringfence import weak
from ringfence.weak.ranks.processes import end_by_signal
from ringfence.weak.tasks.settings import BoxDataSettings
from ringfence.weak.training import fit as fitting
from ringfence.weak.training.settings import TrainingSettings


class Told(nn.Conv2d):
    """Is told to end in its first step, as by this signal."""

    def __init__(self, in_channels: int, out_channels: int, number: int) -> None:
        super().__init__(in_channels, out_channels, 1)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            signal.raise_signal(self.number)
        return super().forward(x)


@pytest.fixture
def heeded() -> Iterator[None]:
    """Both signals, as in a worker of ours that is started from a terminal."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end_by_signal)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(("number", "end"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_a_training_as_what_it_is(
    number: signal.Signals, end: type[BaseException], tmp_path: Path
) -> None:
    """Lightning makes the one into the other; who launches ranks must tell them apart, and Ctrl-C works afterwards."""
    make_prepared(tmp_path / "set", cases=2)
    asked = replace(
        weak.from_preset(weak.TrainSettings, "boxes"),
        network=weak.NetworkSettings(f"{__name__}.Told", {"number": int(number)}),
        training=TrainingSettings(epochs=1, batch_size=4, device="cpu"),
        data=BoxDataSettings(prepared=str(tmp_path / "set")),
    )
    with pytest.raises(end) as caught:
        weak.train(asked, tmp_path / "run", console=Console(quiet=True))
    assert type(caught.value) is end
    if end is SystemExit:
        assert caught.value.code == 128 + number
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_bfloat16_on_a_cpu_trains_alike_and_is_told_where_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A plan's file may come from a processor that multiplies it to one that does not."""
    make_prepared(tmp_path / "set", cases=2)
    changes = {"data.prepared": str(tmp_path / "set"), "training.epochs": 3, "training.device": "cpu"}
    loss = {}
    for precision, native in (("32", False), ("bf16", True), ("bf16", False)):
        monkeypatch.setattr(fitting, "multiplies_bf16", lambda native=native: native)
        asked = weak.from_preset(
            weak.TrainSettings, "boxes-small", {**changes, "training.precision": precision, "seed": 1}
        )
        console = Console(record=True, width=400, file=io.StringIO())
        trained = weak.train(asked, tmp_path / f"{precision}-{native}", console=console)
        loss[precision, native] = trained.history[-1]["train_loss"]
        told = (
            "note: training.precision is bf16, which this processor computes by way of float32"
            in console.export_text()
        )
        assert told == (precision == "bf16" and not native)
    assert loss["bf16", True] == loss["bf16", False]
    assert loss["bf16", True] == pytest.approx(loss["32", False], rel=0.02)
    assert loss["bf16", True] != loss["32", False]


def test_volumes_in_bfloat16_on_a_cpu_are_told_to_be_unsafe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is computed: it might be NaN."""
    make_prepared(tmp_path / "set", cases=2)
    console = Console(record=True, width=400, file=io.StringIO())
    changes = {
        "data.prepared": str(tmp_path / "set"),
        "data.patch": [6, 16, 16],
        "network": weak.NetworkSettings("torch.nn.Conv3d", {"kernel_size": 3, "padding": 1}),
        "training.device": "cpu",
        "training.precision": "bf16",
    }

    def made(*_: object) -> None:
        raise RuntimeError("so far")

    monkeypatch.setattr(fitting, "make_module", made)
    with pytest.raises(RuntimeError, match="so far"):
        weak.train(weak.from_preset(weak.TrainSettings, "boxes-small", changes), tmp_path / "run", console=console)
    assert "convolutions of volumes were seen to return NaN on a CPU" in console.export_text()
