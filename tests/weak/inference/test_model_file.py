"""A model file: what goes in comes out; what is damaged or does not fit is refused by name."""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import save_file

from ringfence import files
from ringfence.weak import load_model
from ringfence.weak.inference.model_file import FORMAT, ModelCard, model_at, read_model, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

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
    save_model(tmp_path / "model.safetensors", saved, CARD)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    loaded, card = read_model(tmp_path / "model.safetensors")
    assert card == CARD
    assert not loaded.training
    images = torch.rand(2, 2, 32, 24)
    assert torch.equal(loaded(images), saved.eval()(images))
    volumes = replace(CARD, class_path="torch.nn.Conv3d", patch=(4, 16, 16))
    save_model(tmp_path / "model.safetensors", network(volumes), volumes)
    assert read_model(tmp_path / "model.safetensors")[1].patch == (4, 16, 16)


def test_the_file_is_safetensors_with_the_card_as_json(tmp_path: Path) -> None:
    saved = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    save_model(tmp_path / "model.safetensors", saved, CARD)
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(saved.state_dict())
        assert all(torch.equal(file.get_tensor(name), one) for name, one in saved.state_dict().items())
        words = file.metadata()
    assert words["format"] == FORMAT == "ringfence model 3"
    assert json.loads(words["card"])["init_args"] == ARGS


def test_a_folder_s_model_is_the_newest_format_s(tmp_path: Path) -> None:
    write_old(tmp_path / "model.pt", facts())
    assert model_at(tmp_path) == tmp_path / "model.pt"
    save_model(tmp_path / "model.safetensors", network(), CARD)
    assert model_at(tmp_path) == tmp_path / "model.safetensors"


def facts(**changes: object) -> dict[str, object]:
    """The card as plain values, as it lies in a file."""
    return CARD.to_facts() | changes


def write(path: Path, card: object, weights: dict[str, torch.Tensor] | None = None, format_: str = FORMAT) -> Path:
    """A file of today's, as anybody can write one."""
    tensors = network().state_dict() if weights is None else weights
    save_file(dict(tensors), path, {"format": format_, "card": json.dumps(card)})
    return path


def write_old(path: Path, card: object, weights: object = None, format_: str = "ringfence model 2") -> Path:
    tensors = network().state_dict() if weights is None else weights
    torch.save({"format": format_, "card": card, "weights": tensors}, path)
    return path


def test_a_model_knows_its_flips_and_its_percentiles(tmp_path: Path) -> None:
    card = replace(CARD, flips=("left-right",), preprocessing=Preprocessing((32, 24), (2.0, 90.0)))
    save_model(tmp_path / "model.safetensors", network(), card)
    assert read_model(tmp_path / "model.safetensors")[1] == card
    none = {name: value for name, value in facts().items() if name != "flips"}
    assert read_model(write(tmp_path / "none.safetensors", none))[1].flips == ()
    assert read_model(write_old(tmp_path / "none.pt", none))[1].flips == ()
    with pytest.raises(
        ValueError, match=r"card is damaged .*flipped along left-right, up-down, slices, not 'time'"
    ):
        read_model(write(tmp_path / "bad.safetensors", facts(flips=["time"])))
    with pytest.raises(ValueError, match="a model of slices, flipped along slices"):
        read_model(write(tmp_path / "flat.safetensors", facts(flips=["slices"])))
    with pytest.raises(ValueError, match="each axis to flip along once; got up-down, up-down"):
        replace(CARD, flips=("up-down", "up-down"))


def test_a_model_knows_its_levels(tmp_path: Path) -> None:
    card = replace(CARD, levels=(0.25,) * len(CARD.classes))
    save_model(tmp_path / "model.safetensors", network(), card)
    assert read_model(tmp_path / "model.safetensors")[1] == card
    assert read_model(write(tmp_path / "none.safetensors", facts()))[1].levels == ()
    assert "levels" not in CARD.to_facts()  # an earlier version would not know the word


def test_a_model_knows_how_it_looks_at_images(tmp_path: Path) -> None:
    card = replace(CARD, turns=(-30.0, 30.0), neighbours=0.25)
    save_model(tmp_path / "model.safetensors", network(), card)
    assert read_model(tmp_path / "model.safetensors")[1] == card
    found = read_model(write(tmp_path / "none.safetensors", facts()))[1]
    assert (found.turns, found.neighbours) == ((), 0.0)
    assert not {"turns", "neighbours"} & set(CARD.to_facts())  # an earlier version would not know the words


def test_a_model_of_the_one_version_that_smoothed_is_read(tmp_path: Path) -> None:
    assert read_model(write(tmp_path / "smooth.safetensors", facts(smoothing=2)))[1] == CARD


@pytest.mark.parametrize("turns", [[0.0], [181], [True], ["1"], 10.0, None, [1e300], [1.0] * 256])
def test_turns_that_are_none(turns: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"card is damaged \(turns are"):
        read_model(write(tmp_path / "bad.safetensors", facts(turns=turns)))


@pytest.mark.parametrize("neighbours", [-0.1, 0.34, True, "1", [0.1], None, 1e300])
def test_neighbours_that_are_none(neighbours: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"card is damaged \(neighbours are"):
        read_model(write(tmp_path / "bad.safetensors", facts(neighbours=neighbours)))


def test_volumes_have_no_neighbours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a model of volumes, averaged over neighbouring slices"):
        read_model(write(tmp_path / "bad.safetensors", facts(neighbours=0.2, patch=[16, 16, 16])))


@pytest.mark.parametrize("levels", [[0.1] * 7, [True], ["0.1"], [21], [-1e300], 0.1, {"prostate": 0.1}])
def test_levels_that_are_none(levels: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"card is damaged \(levels are"):
        read_model(write(tmp_path / "bad.safetensors", facts(levels=levels)))


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
    file = write_old(tmp_path / "model.pt", old, saved.state_dict(), "ringfence model 1")
    loaded, card = read_model(file)
    assert card.preprocessing == Preprocessing((32, 24), (0.5, 99.5))
    assert (card.flips, card.labels, card.method) == (mirrors or (), (1, 4), "penalty")
    images = torch.rand(1, 2, 32, 24)
    assert torch.equal(loaded(images), saved.eval()(images))
    found = load_model(file, device="cpu").predict(np.random.default_rng(0).normal(size=(2, 3, 40, 30)))
    assert found.mask.shape == (3, 40, 30)
    assert set(np.unique(found.mask)) <= {0, 1, 4}


def test_a_newer_format_says_what_to_do(tmp_path: Path) -> None:
    says = r"is a 'ringfence model 7', and this ringfence reads up to 'ringfence model 3': update"
    with pytest.raises(ValueError, match=says):
        read_model(write(tmp_path / "model.safetensors", {"who": "knows"}, {}, "ringfence model 7"))
    with pytest.raises(ValueError, match=says):
        read_model(write_old(tmp_path / "model.pt", {"who": "knows"}, {}, "ringfence model 7"))


def test_a_model_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.safetensors"
    save_model(file, network(), CARD)
    before = file.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(files.WriteFailed, match="the disk is full"):
        save_model(file, network(), CARD)
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]
    assert file.read_bytes() == before


class Runs:
    """What a malicious pickle would do."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, (RAN, "w"))


RAN = ""


def test_nothing_in_a_model_file_is_run(tmp_path: Path) -> None:
    global RAN
    RAN = str(tmp_path / "ran")
    torch.save({"format": "ringfence model 2", "card": Runs(), "weights": {}}, tmp_path / "model.pt")
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
    with pytest.raises(ValueError, match=r"it should be what `ringfence train` wrote as model.safetensors"):
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
        ("channels", ["a"] * 300),
        ("channels", ["x" * 1000, "b"]),
        ("classes", ["red\x1b[31m", "b"]),
        ("classes", [1, 2]),
        ("patch", [4, 4, 2**20]),
        ("class_path", 3),
        ("class_path", "Conv2d"),
        ("class_path", "torch.nn.Conv2d; import os"),
        ("class_path", "../model.Net"),
        ("init_args", [1]),
        ("init_args", {"a b": 1}),
        ("init_args", {"a": [[0] * 200] * 200}),
        ("labels", [1.0, 2.0]),
        ("method", ["penalty"]),
        ("commit", "x" * 1000),
        ("stranger", 1),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_a_damaged_card_is_refused(key: str, value: object, old: bool, tmp_path: Path) -> None:
    """D11: class_path was no string; the rest could be anything."""
    file = tmp_path / ("model.pt" if old else "model.safetensors")
    (write_old if old else write)(file, facts() | {key: value})
    with pytest.raises(ValueError, match=r"model.\w+ is not a model that can be used: its card is damaged"):
        read_model(file)


@pytest.mark.parametrize("card", [None, 3, "text", [], {"class_path": "torch.nn.Conv2d"}, {}])
def test_what_is_no_card_is_refused(card: object, tmp_path: Path) -> None:
    for file in (write(tmp_path / "model.safetensors", card), write_old(tmp_path / "model.pt", card)):
        with pytest.raises(ValueError, match="its card is damaged"):
            read_model(file)


def test_a_card_that_is_no_json_is_refused(tmp_path: Path) -> None:
    """D11: a card of 3000 levels was a RecursionError, one of 400 digits an OverflowError."""
    for text in (
        "",
        "{",
        "[" * 3000 + "]" * 3000,
        '{"size": 1e999}',
        f'{{"labels": {"9" * 400}}}',
        '{"a": 1, "a": 2}',
    ):
        save_file(network().state_dict(), tmp_path / "m.safetensors", {"format": FORMAT, "card": text})
        with pytest.raises(ValueError, match=r"m.safetensors"):
            read_model(tmp_path / "m.safetensors")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """D11: a weight's name that is no string, one that is no tensor, one of another kind."""
    right = dict(network().state_dict())
    cases: list[tuple[dict[object, object], str]] = [
        ({}, "temperature is missing"),
        (right | {"more": torch.zeros(2)}, "the network has no 'more'"),
        (right | {"network.weight": torch.zeros(3, 2, 3, 4)}, r"weight is \[3, 2, 3, 4\], and the network's is"),
        (
            right | {"network.bias": torch.zeros(3, dtype=torch.int32)},
            "bias is of torch.int32, and the network's of",
        ),
        (right | {"network.bias": torch.zeros(3, dtype=torch.bool)}, "bias is of torch.bool"),
    ]
    for weights, says in cases:
        for file in (write(tmp_path / "m.safetensors", facts(), weights), write_old(tmp_path / "m.pt", facts(), weights)):  # type: ignore[arg-type] # fmt: skip
            with pytest.raises(ValueError, match=rf"its weights do not fit its network: .*{says}"):
                read_model(file)
    for weights, says in (({7: torch.zeros(2)}, "7 is no tensor"), ({"a": "b"}, "'a' is no tensor")):
        with pytest.raises(ValueError, match=says):
            read_model(write_old(tmp_path / "m.pt", facts(), weights))
    torch.save({"format": "ringfence model 2", "card": facts()}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"m.pt: its weights do not fit its network: there are none"):
        read_model(tmp_path / "m.pt")


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    """A length that is too long, a header that is cut off, offsets beyond the file."""
    save_model(tmp_path / "m.safetensors", network(), CARD)
    whole = (tmp_path / "m.safetensors").read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["network.bias"]["data_offsets"][1] += 4
    moved = json.dumps(header).encode()
    for content in (
        whole[:-1],
        whole[:20],
        whole + b"more",
        struct.pack("<Q", 2**63) + whole[8:],
        struct.pack("<Q", length - 1) + whole[8:],
        struct.pack("<Q", len(moved)) + moved + whole[8 + length :],
    ):
        (tmp_path / "m.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"m.safetensors is not a model that can be used: it is damaged"):
            read_model(tmp_path / "m.safetensors")


def test_a_card_knows_the_labels_of_its_classes(tmp_path: Path) -> None:
    assert CARD.labels == (1, 2)
    save_model(tmp_path / "model.safetensors", network(), replace(CARD, labels=(2, 4)))
    assert read_model(tmp_path / "model.safetensors")[1].labels == (2, 4)
    older = {name: value for name, value in facts().items() if name != "labels"}
    assert read_model(write_old(tmp_path / "model.pt", older))[1].labels == (1, 2)
    for wrong in ((1,), (1, 1), (0, 1), (1, 256), ("1", "2"), 7):
        with pytest.raises(ValueError, match=r"its card is damaged"):
            read_model(write(tmp_path / "model.safetensors", facts(labels=wrong)))
