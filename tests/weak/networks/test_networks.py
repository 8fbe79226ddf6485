"""Networks by name: found, built, checked; and the temperature and prior around them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from ringfence.weak.networks.build import Tempered, build_network, check_network

UNET = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "features": [4, 4, 4, 4, 4, 4]}


class Flat(nn.Module):
    """Says the same about each pixel."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits.view(1, -1, 1, 1).expand(len(images), -1, *images.shape[2:])


@pytest.mark.parametrize("prior", [0.01, 0.3])
@pytest.mark.parametrize("classes", [1, 3])
def test_an_undecided_network_begins_at_the_prior(prior: float, classes: int) -> None:
    network = Tempered(Flat(*[0.7] * (1 + classes)), classes, prior)
    shares = network(torch.zeros(2, 1, 4, 4)).softmax(dim=1)
    expected = torch.tensor([1 - classes * prior, *[prior] * classes]).view(1, -1, 1, 1).expand_as(shares)
    torch.testing.assert_close(shares, expected)


def test_the_temperature_divides_the_network_but_not_the_prior() -> None:
    network = Tempered(Flat(0.0, 2.0), prior=0.1)
    network.temperature.fill_(0.5)
    logits = network(torch.zeros(1, 1, 2, 2))
    torch.testing.assert_close(logits[0, 1], torch.full((2, 2), 2.0 / 0.5 + math.log(0.1 / 0.9)))
    assert set(network.state_dict()) == {"temperature", "offset", "network.logits"}


@pytest.mark.parametrize(("classes", "prior"), [(1, 0.0), (1, 1.0), (1, -0.1), (3, 0.4)])
def test_an_impossible_prior_is_refused(classes: int, prior: float) -> None:
    with pytest.raises(ValueError, match="must be a fraction between 0 and 1"):
        Tempered(Flat(0.0, 0.0), classes, prior)


def test_monai_networks_are_found_by_class_path() -> None:
    network = build_network("monai.networks.nets.BasicUNet", UNET)
    check_network(network, torch.zeros(1, 32, 32), 2)
    assert type(network).__name__ == "BasicUNet"
    assert network.training


def test_a_network_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\nclass Tiny(nn.Conv2d):\n    def __init__(self, width=3):\n        super().__init__(1, 2, width, padding='same')\n"
    )
    monkeypatch.chdir(tmp_path)
    network = build_network("my_nets.Tiny", {"width": 5})
    check_network(network, torch.zeros(1, 8, 8), 2)
    assert network.weight.shape == (2, 1, 5, 5)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_nets.py").write_text("class Net(\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'broken_nets' cannot be imported: SyntaxError"):
        build_network("broken_nets.Net", {})


@pytest.mark.parametrize(
    ("class_path", "arguments", "message"),
    [
        ("UNet", {}, "network.class_path: 'UNet' needs its module, as in my_module.MyClass"),
        ("nowhere.UNet", {}, "there is no module 'nowhere' for 'nowhere.UNet'"),
        ("monai.networks.nets.BasicUnett", {}, r"monai.networks.nets has no 'BasicUnett'; did you mean 'BasicU"),
        ("math.sqrt", {}, "'math.sqrt' is not a torch.nn.*Module"),
        (
            "torch.nn.Conv2d",
            {"channels": 3},
            r"network.init_args: torch.nn.Conv2d does not take \{'channels': 3\}: .*\nIt takes: in_channels, out_ch",
        ),
    ],
)
def test_an_impossible_network_is_refused_by_name(class_path: str, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_network(class_path, arguments)


@pytest.mark.parametrize(
    ("network", "size", "message"),
    [
        (nn.Conv2d(1, 3, 1), 8, r"Conv2d must return logits \[2, 2, 8, 8\] for two images, got \[2, 3, 8, 8\]"),
        (nn.Conv2d(3, 2, 1), 8, r"Conv2d cannot take images \[1, 8, 8\]: .*channels not theirs\?"),
        (nn.Conv2d(1, 2, 9), 8, r"Conv2d cannot take images \[1, 8, 8\]: .*too small"),
        (nn.LSTM(8, 8), 8, r"LSTM cannot take images|LSTM must return logits"),
    ],
)  # fmt: skip
def test_a_network_that_does_not_fit_is_refused(network: nn.Module, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_network(network, torch.zeros(1, size, size), 2)
    assert network.training
