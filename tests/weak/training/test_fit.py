"""How a training is ended from outside: by Ctrl-C or by SIGTERM, each as what it is."""

from __future__ import annotations

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
