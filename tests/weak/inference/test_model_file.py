"""A model file: what goes in comes out; what is damaged, foreign or would run code is refused by name."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.weak import load_model
from ringfence.weak.inference.model_file import FORMAT, ModelCard, read_model, save_model
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.training.networks import Tempered, build_network

ARGS = {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "padding": 1}
CARD = ModelCard(
    "torch.nn.Conv2d",
    ARGS,
    ("T2", "ADC"),
    ("zone", "lesion"),
    Preprocessing((32, 24)),
    method="log_barrier",
    commit="c",
)


def network(card: ModelCard = CARD) -> Tempered:
    return Tempered(build_network(card.class_path, card.init_args), len(card.classes), prior=0.1)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = network()
    saved.temperature.fill_(0.25)
    save_model(tmp_path / "model.pt", saved, CARD)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    loaded, card = read_model(tmp_path / "model.pt")
    assert card == CARD
    assert not loaded.training
    images = torch.rand(2, 2, 32, 24)
    assert torch.equal(loaded(images), saved.eval()(images))
    volumes = replace(CARD, class_path="torch.nn.Conv3d", patch=(4, 16, 16))
    save_model(tmp_path / "model.pt", network(volumes), volumes)
    assert read_model(tmp_path / "model.pt")[1].patch == (4, 16, 16)


def facts(**changes: object) -> dict[str, object]:
    """The card as plain values, as it lies in a file."""
    return asdict(CARD) | {"preprocessing": CARD.preprocessing.to_facts()} | changes


def write(path: Path, card: object, weights: object = None, format_: str = FORMAT) -> Path:
    torch.save(
        {"format": format_, "card": card, "weights": network().state_dict() if weights is None else weights}, path
    )
    return path


def test_a_model_knows_its_flips_and_its_percentiles(tmp_path: Path) -> None:
    card = replace(CARD, flips=("left-right",), preprocessing=Preprocessing((32, 24), (2.0, 90.0)))
    save_model(tmp_path / "model.pt", network(), card)
    assert read_model(tmp_path / "model.pt")[1] == card
    none = {name: value for name, value in facts().items() if name != "flips"}
    assert read_model(write(tmp_path / "none.pt", none))[1].flips == ()
    with pytest.raises(
        ValueError, match=r"card is damaged .*flipped along left-right, up-down, slices, not 'time'"
    ):
        read_model(write(tmp_path / "bad.pt", facts(flips=["time"]), {}))
    with pytest.raises(ValueError, match="a model of slices, flipped along slices"):
        read_model(write(tmp_path / "flat.pt", facts(flips=["slices"]), {}))
    with pytest.raises(ValueError, match="each axis to flip along once; got up-down, up-down"):
        replace(CARD, flips=("up-down", "up-down"))


@pytest.mark.parametrize("mirrors", [("left-right", "up-down"), None])
def test_a_model_of_the_first_format_is_still_read(mirrors: tuple[str, ...] | None, tmp_path: Path) -> None:
    """As version 0.1 wrote it: with a size, and mirrors where it knew of them; nothing about preprocessing."""
    saved = network()
    old: dict[str, object] = {
        "class_path": "torch.nn.Conv2d",
        "init_args": ARGS,
        "channels": ("T2", "ADC"),
        "classes": ("zone", "lesion"),
        "size": (32, 24),
        "patch": None,
        "method": "penalty",
        "commit": "abc",
        "labels": (1, 4),
    }
    if mirrors is not None:
        old["mirrors"] = mirrors
    file = write(tmp_path / "model.pt", old, saved.state_dict(), "ringfence model 1")
    loaded, card = read_model(file)
    assert card.preprocessing == Preprocessing((32, 24), (0.5, 99.5))
    assert (card.flips, card.labels, card.method) == (mirrors or (), (1, 4), "penalty")
    images = torch.rand(1, 2, 32, 24)
    assert torch.equal(loaded(images), saved.eval()(images))
    found = load_model(file, device="cpu").predict(np.random.default_rng(0).normal(size=(2, 3, 40, 30)))
    assert found.mask.shape == (3, 40, 30)
    assert set(np.unique(found.mask)) <= {0, 1, 4}


def test_a_newer_format_says_what_to_do(tmp_path: Path) -> None:
    file = write(tmp_path / "model.pt", {"who": "knows"}, {}, "ringfence model 7")
    with pytest.raises(
        ValueError, match=r"is a 'ringfence model 7', and this ringfence reads up to 'ringfence model 2': update"
    ):
        read_model(file)


def test_a_model_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path / "model.pt", network(), CARD)
    before = (tmp_path / "model.pt").read_bytes()

    def half(what: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        save_model(tmp_path / "model.pt", network(), CARD)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    assert (tmp_path / "model.pt").read_bytes() == before


class Runs:
    """What a malicious pickle would do."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, (RAN, "w"))


RAN = ""


def test_nothing_in_a_model_file_is_run(tmp_path: Path) -> None:
    global RAN
    RAN = str(tmp_path / "ran")
    torch.save({"format": FORMAT, "card": Runs(), "weights": {}}, tmp_path / "model.pt")
    with pytest.raises(
        ValueError, match=r"model.pt is not a model .*: it is damaged, or holds more than plain tensors"
    ):
        read_model(tmp_path / "model.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more", pickle.dumps({"weights": 1})])
def test_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"model.pt is not a model that can be used: .* what `ringfence train` wrote"
    ):
        read_model(file)
    with pytest.raises(FileNotFoundError, match="nothing.pt is not a model: there is no such file"):
        read_model(tmp_path / "nothing.pt")
    torch.save([1, 2], file)
    with pytest.raises(ValueError, match=r"it should be what `ringfence train` wrote as model.pt"):
        read_model(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("preprocessing", {"size": [32], "percentiles": [0.5, 99.5]}),
        ("preprocessing", {"size": [0, 32], "percentiles": [0.5, 99.5]}),
        ("preprocessing", {"size": [32, 32], "percentiles": [99.5, 0.5]}),
        ("preprocessing", {"size": [32, 32]}),
        ("preprocessing", None),
        ("patch", [4, 4]),
        ("classes", []),
        ("classes", ["a", "a"]),
        ("channels", 3),
        ("stranger", 1),
    ],
)
def test_a_damaged_card_is_refused(key: str, value: object, tmp_path: Path) -> None:
    write(tmp_path / "model.pt", facts() | {key: value}, {})
    with pytest.raises(ValueError, match=r"model.pt is not a model that can be used: its card is damaged"):
        read_model(tmp_path / "model.pt")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "model.pt", facts(), {})
    with pytest.raises(ValueError, match=r"model.pt: its weights do not fit its network: Missing key\(s\)"):
        read_model(tmp_path / "model.pt")
    torch.save({"format": FORMAT, "card": facts()}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model.pt: its weights do not fit its network"):
        read_model(tmp_path / "model.pt")


def test_a_stranger_s_network_is_imported_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stranger_net.py").write_text(
        "from pathlib import Path\nfrom torch import nn\nPath(__file__).with_name('imported').touch()\n"
        "class Net(nn.Conv2d):\n    pass\n"
    )
    card = replace(CARD, class_path="stranger_net.Net")
    save_model(tmp_path / "model.pt", network(), card)
    for trust in (None, "stranger_net.Other"):
        with pytest.raises(ValueError, match=r"if you trust it, say so with --trust stranger_net.Net"):
            read_model(tmp_path / "model.pt", trust)
    assert not (tmp_path / "imported").exists()
    assert read_model(tmp_path / "model.pt", "stranger_net.Net")[1] == card


def test_a_card_knows_the_labels_of_its_classes(tmp_path: Path) -> None:
    assert CARD.labels == (1, 2)
    save_model(tmp_path / "model.pt", network(), replace(CARD, labels=(2, 4)))
    assert read_model(tmp_path / "model.pt")[1].labels == (2, 4)
    kept = torch.load(tmp_path / "model.pt", weights_only=True)
    older = {name: value for name, value in kept["card"].items() if name != "labels"}
    torch.save(kept | {"card": older}, tmp_path / "model.pt")
    assert read_model(tmp_path / "model.pt")[1].labels == (1, 2)
    for wrong in ((1,), (1, 1), (0, 1), (1, 256), ("1", "2"), 7):
        torch.save(kept | {"card": kept["card"] | {"labels": wrong}}, tmp_path / "model.pt")
        with pytest.raises(ValueError, match=r"its card is damaged"):
            read_model(tmp_path / "model.pt")
