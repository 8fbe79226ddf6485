"""Models are data: a card alone imports nothing, downloads nothing, runs nothing, and takes no memory."""

from __future__ import annotations

import inspect
import json
import socket
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import monai.networks.nets
import pytest
import torch
from safetensors.torch import save_file

from children import python
from ringfence import class_path
from ringfence.weak.inference.model_file import FORMAT, ModelCard, read_model, save_model
from ringfence.weak.inference.predictor import Predictor
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.networks.known import KNOWN_NETWORKS
from ringfence.weak.prepared.preprocessing import Preprocessing

CARD = ModelCard(
    "torch.nn.Conv2d",
    {"in_channels": 1, "out_channels": 2, "kernel_size": 1},
    ("T2",),
    ("gland",),
    Preprocessing((16, 16)),
)
WEIGHTS = Tempered(build_network(CARD.class_path, CARD.init_args)).state_dict()
HUB = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
"""


def written(path: Path, name: str, arguments: dict[str, object], old: bool = False) -> Path:
    """A model of the network of that name, whose weights are a convolution's: they are never looked at."""
    facts = CARD.to_facts() | {"class_path": name, "init_args": arguments}
    if old:
        torch.save({"format": "ringfence model 2", "card": facts, "weights": WEIGHTS}, path)
    else:
        save_file(WEIGHTS, path, {"format": FORMAT, "card": json.dumps(facts)})
    return path


@pytest.fixture
def no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be looked up for a card that is not to be trusted, and no socket opened."""

    def never(*arguments: object, **_: object) -> None:
        raise AssertionError(f"called with {arguments}")

    monkeypatch.setattr(class_path, "import_module", never)
    monkeypatch.setattr(socket, "socket", never)
    monkeypatch.setattr(urllib.request, "urlopen", never)
    monkeypatch.setattr(torch.hub, "load", never)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.usefixtures("no_import")
def test_a_card_cannot_import_code_of_the_current_folder(
    old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: PerceptualLoss imported hub/.../hubconf.py of the current folder."""
    hub = tmp_path / "hub" / "Project-MONAI_perceptual-models_main"
    hub.mkdir(parents=True)
    (hub / "hubconf.py").write_text(HUB)
    monkeypatch.chdir(tmp_path)
    arguments = {
        "spatial_dims": 3,
        "network_type": "medicalnet_resnet10_23datasets",
        "cache_dir": "hub",
        "is_fake_3d": False,
    }
    file = written(tmp_path / "m.safetensors", "monai.losses.PerceptualLoss", arguments, old)
    with pytest.raises(ValueError, match=r"say so with --trust monai.losses.PerceptualLoss"):
        read_model(file)
    assert not (hub / "ran").exists()


@pytest.mark.usefixtures("no_import")
def test_a_card_cannot_make_a_request(tmp_path: Path) -> None:
    """D1: HoVerNet asked the card's address for weights."""
    file = written(
        tmp_path / "m.safetensors", "monai.networks.nets.HoVerNet", {"pretrained_url": "http://127.0.0.1:9/x"}
    )
    with pytest.raises(
        ValueError, match=r"HoVerNet, whose code would run: .*'pretrained_url': 'http://127.0.0.1:9/x'"
    ):
        read_model(file)


def others() -> list[str]:
    """Every class and function that MONAI and torch have for networks, but for those that are known."""
    places = {"monai.networks.nets": monai.networks.nets, "torch.nn": torch.nn, "torch.hub": torch.hub}
    return [
        f"{place}.{name}"
        for place, module in places.items()
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and f"{place}.{name}" not in KNOWN_NETWORKS
    ]


@pytest.mark.usefixtures("no_import")
def test_every_other_class_needs_trust(tmp_path: Path) -> None:
    """D1: every class under monai. and torch. was taken, with any arguments."""
    names = [
        *others(),
        "os.system",
        "builtins.exec",
        "subprocess.Popen",
        "monai.bundle.run",
        "monai.nowhere.Net",
        "torch.load",
    ]
    assert len(names) > 250
    for name in names:
        with pytest.raises(ValueError, match=rf"uses the network {name}, whose code would run"):
            read_model(written(tmp_path / "m.safetensors", name, {}))


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("FlexibleUNet", "pretrained", True),
        ("FlexibleUNet", "backbone", "../resnet18"),
        ("FlexibleUNet", "weights", "http://127.0.0.1:9/x"),
        ("SegResNetDS", "preprocess", "os.system"),
        ("SwinUNETR", "norm_layer", "torch.nn.LayerNorm"),
        ("UNet", "norm", "INSTANCE_NVFUSER"),
        ("UNet", "act", "/etc/passwd"),
        ("UNet", "act", ["relu", {"path": "x"}]),
        ("UNet", "act", ["relu", {"inplace": "http://x"}]),
        ("UNet", "channels", [10**9]),
        ("UNet", "channels", [1] * 1000),
        ("UNet", "dropout", 1e300),
        ("UNet", "channels", [[[[[[1]]]]]]),
        ("UNet", "adn_ordering", "NDAX"),
        ("UNet", "device", "meta"),
    ],
)
@pytest.mark.usefixtures("no_import")
def test_a_known_network_has_plain_arguments_alone(name: str, argument: str, value: object, tmp_path: Path) -> None:
    """D1: paths, addresses, classes and what is downloaded need trust, with a known network, too."""
    file = written(tmp_path / "m.safetensors", f"monai.networks.nets.{name}", {argument: value})
    with pytest.raises(ValueError, match=rf"whose code would run: its argument '?{argument}.* --trust monai"):
        read_model(file)


def test_every_known_network_is_there_with_these_arguments() -> None:
    """So that a misspelt one is found; those of older or newer versions of MONAI aside."""
    elsewhere = {"pos_embed", "img_size"}
    for path, (usual, arguments) in KNOWN_NETWORKS.items():
        network = class_path.find(path, "network", here=False)
        assert network is class_path.find(usual, "network", here=False), path
        assert arguments - elsewhere <= set(inspect.signature(network).parameters), path
        assert not {"device", "dtype", "weights", "url", "norm_layer", "preprocess"} & arguments


SMALL: dict[str, dict[str, object]] = {
    "UNet": {"channels": [4, 8], "strides": [2], "num_res_units": 1, "norm": "batch"},
    "BasicUNet": {"features": [4] * 6, "act": ["LeakyReLU", {"negative_slope": 0.1, "inplace": True}]},
    "DynUNet": {"kernel_size": [3] * 3, "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "filters": [4, 8, 8]},
    "AttentionUnet": {"channels": [4, 8], "strides": [2]},
    "SegResNet": {"init_filters": 8, "norm": ["GROUP", {"num_groups": 4}]},
    "SegResNetDS": {"init_filters": 8, "blocks_down": [1, 1]},
    "VNet": {},
    "MedNeXt": {"init_filters": 4, "blocks_down": [1] * 4, "blocks_up": [1] * 4, "blocks_bottleneck": 1},
    "FlexibleUNet": {"backbone": "resnet10", "pretrained": False, "decoder_channels": [8] * 5},
    "SwinUNETR": {"feature_size": 12, "depths": [1] * 4, "drop_rate": 0.1, "dropout_path_rate": 0.1},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_known_network_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    """Also with weights laid out as training lays them out, and without touching torch's random numbers twice."""
    arguments = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2} | SMALL[name]
    card = replace(CARD, class_path=f"monai.networks.nets.{name}", init_args=arguments)
    saved = (
        Tempered(build_network(card.class_path, arguments), prior=0.1).to(memory_format=torch.channels_last).eval()
    )  # type: ignore[call-overload]
    save_model(tmp_path / "m.safetensors", saved, card)
    loaded, back = read_model(tmp_path / "m.safetensors")
    assert back == card
    for (one, mine), (other, theirs) in zip(saved.named_buffers(), loaded.named_buffers(), strict=True):
        assert one == other
        assert torch.equal(mine, theirs), one
    images = torch.rand(1, 1, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), saved(images), rtol=0, atol=1e-5)
        plain = Tempered(build_network(card.class_path, arguments)).eval()
        plain.load_state_dict(saved.state_dict())
        assert torch.equal(loaded(images), plain(images))


def test_known_networks_are_not_looked_for_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    original = class_path.import_module

    def import_module(name: str) -> object:
        searched.append("" in sys.path[-1:])
        return original(name)

    monkeypatch.setattr(class_path, "import_module", import_module)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    save_model(tmp_path / "m.safetensors", Tempered(build_network(CARD.class_path, CARD.init_args)), CARD)
    searched.clear()
    read_model(tmp_path / "m.safetensors")
    assert searched
    assert not any(searched)


def test_a_stranger_s_network_is_imported_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "stranger"
    package.mkdir()
    (package / "__init__.py").write_text("from pathlib import Path\nPath(__file__).with_name('imported').touch()\n")
    (package / "net.py").write_text("from torch import nn\nclass Net(nn.Conv2d):\n    pass\n")
    card = replace(CARD, class_path="stranger.net.Net")
    save_model(tmp_path / "m.safetensors", Tempered(build_network(CARD.class_path, CARD.init_args)), card)
    for trust in (None, "stranger.net.Other", "stranger.net"):
        with pytest.raises(ValueError, match=r"if you trust it, say so with --trust stranger.net.Net") as caught:
            read_model(tmp_path / "m.safetensors", trust)
        assert str(package / "net.py") in str(caught.value)
        assert "'kernel_size': 1" in str(caught.value)
    assert not (package / "imported").exists()
    assert read_model(tmp_path / "m.safetensors", "stranger.net.Net")[1] == card
    assert (package / "imported").exists()


BOMBS = {
    "wide": ("BasicUNet", {"features": [60_000] * 6}),
    "deep": ("UNet", {"channels": [4, 4], "strides": [2], "num_res_units": 1_000_000}),
    "kernels": ("UNet", {"channels": [4, 4], "strides": [2], "kernel_size": 100_000}),
    "depths": ("SwinUNETR", {"depths": [1_000_000] * 4}),
    "window": ("SwinUNETR", {"window_size": 3_000}),
    "blocks": ("SegResNet", {"blocks_down": [1_000_000]}),
}


def test_what_a_card_asks_for_is_measured_before_it_is_made(tmp_path: Path) -> None:
    """D8: a card with size [30000, 30000] took 17.6 GB. In a process of its own, whose memory is measured."""
    files = []
    for name, (network, arguments) in BOMBS.items():
        arguments = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2} | arguments
        files.append(written(tmp_path / f"{name}.safetensors", f"monai.networks.nets.{network}", arguments))
    large = replace(CARD, preprocessing=Preprocessing((30_000, 30_000)))
    volumes = replace(CARD, class_path="torch.nn.Conv3d", patch=(3_000, 3_000, 3_000))
    for card in (large, volumes):
        files.append(tmp_path / f"{card.class_path}.safetensors")
        save_model(files[-1], Tempered(build_network(card.class_path, CARD.init_args)), card)
    done = python("-W", "ignore", "-c", MEASURED, *files, RINGFENCE_MEMORY="1GB", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(files)
    for line in done.stdout.splitlines():
        assert "would take" in line or "does not" in line or "do not fit" in line, line
        assert float(line.split()[0]) < 300e6, line


MEASURED = """
import resource, sys, time
import numpy as np
import torch
from ringfence.weak import load_model
torch.nn.Conv2d(1, 1, 1, device="meta")(torch.empty(1, 1, 2, 2, device="meta"))
import monai.networks.nets
for file in sys.argv[1:]:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.time()
    try:
        load_model(file, device="cpu").predict(np.zeros((2, 30, 30)))
    except ValueError as error:
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((after - before) * 1024, f"{time.time() - began:.2f} s", str(error).splitlines()[0])
"""


def test_a_layer_that_enlarges_its_image_is_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8: a padding of 3000 around 16 × 16 pixels took sixteen times the limit."""
    arguments = {"in_channels": 1, "out_channels": 2, "kernel_size": 1, "padding": 3000}
    path = written(tmp_path / "model.safetensors", "torch.nn.Conv2d", arguments)
    monkeypatch.setenv("RINGFENCE_MEMORY", "100MB")
    with pytest.raises(ValueError, match="the network's answer about an image of 16 × 16 would take"):
        Predictor(*read_model(path), device="cpu")
