"""A model file: what goes in comes out; what is damaged, foreign or would run code is refused by name."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from ringfence.weak.inference.model_file import FORMAT, ModelCard, load_model, save_model
from ringfence.weak.training.networks import Tempered, build_network

ARGS = {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "padding": 1}
CARD = ModelCard(
    "torch.nn.Conv2d", ARGS, ("T2", "ADC"), ("zone", "lesion"), (32, 24), method="log_barrier", commit="c"
)


def network(card: ModelCard = CARD) -> Tempered:
    return Tempered(build_network(card.class_path, card.init_args), len(card.classes), prior=0.1)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = network()
    saved.temperature.fill_(0.25)
    save_model(tmp_path / "model.pt", saved, CARD)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    loaded, card = load_model(tmp_path / "model.pt")
    assert card == CARD
    assert not loaded.training
    images = torch.rand(2, 2, 32, 24)
    assert torch.equal(loaded(images), saved.eval()(images))
    volumes = replace(CARD, class_path="torch.nn.Conv3d", patch=(4, 16, 16))
    save_model(tmp_path / "model.pt", network(volumes), volumes)
    assert load_model(tmp_path / "model.pt")[1].patch == (4, 16, 16)


def test_a_model_knows_its_mirrors_and_an_older_one_has_none(tmp_path: Path) -> None:
    mirrored = replace(CARD, mirrors=("left-right",))
    save_model(tmp_path / "model.pt", network(), mirrored)
    assert load_model(tmp_path / "model.pt")[1] == mirrored
    older = {name: value for name, value in asdict(CARD).items() if name != "mirrors"}
    torch.save({"format": FORMAT, "card": older, "weights": network().state_dict()}, tmp_path / "old.pt")
    assert load_model(tmp_path / "old.pt")[1].mirrors == ()
    torch.save({"format": FORMAT, "card": older | {"mirrors": ["time"]}, "weights": {}}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match=r"card is damaged .*mirrored along left-right, up-down, slices, not time"):
        load_model(tmp_path / "bad.pt")
    torch.save({"format": FORMAT, "card": older | {"mirrors": ["slices"]}, "weights": {}}, tmp_path / "flat.pt")
    with pytest.raises(ValueError, match="a model of slices, mirrored along slices"):
        load_model(tmp_path / "flat.pt")
    with pytest.raises(ValueError, match="each axis to mirror along once; got up-down, up-down"):
        replace(CARD, mirrors=("up-down", "up-down"))


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
        ValueError, match=r"model.pt is no model .*: it is damaged, or holds more than plain tensors"
    ):
        load_model(tmp_path / "model.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more", pickle.dumps({"weights": 1})])
def test_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"model.pt is no model that can be used: .* what `ringfence train` wrote"):
        load_model(file)
    with pytest.raises(FileNotFoundError, match="nothing.pt is no model: there is no such file"):
        load_model(tmp_path / "nothing.pt")
    torch.save([1, 2], file)
    with pytest.raises(ValueError, match=r"it should be what `ringfence train` wrote as model.pt"):
        load_model(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", [32]),
        ("size", [0, 32]),
        ("size", None),
        ("patch", [4, 4]),
        ("classes", []),
        ("classes", ["a", "a"]),
        ("channels", 3),
        ("stranger", 1),
    ],
)
def test_a_damaged_card_is_refused(key: str, value: object, tmp_path: Path) -> None:
    torch.save({"format": FORMAT, "card": {**asdict(CARD), key: value}, "weights": {}}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model.pt is no model that can be used: its card is damaged"):
        load_model(tmp_path / "model.pt")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch.save({"format": FORMAT, "card": asdict(CARD), "weights": {}}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model.pt: its weights do not fit its network: Missing key\(s\)"):
        load_model(tmp_path / "model.pt")
    torch.save({"format": FORMAT, "card": asdict(CARD)}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model.pt: its weights do not fit its network"):
        load_model(tmp_path / "model.pt")


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
            load_model(tmp_path / "model.pt", trust)
    assert not (tmp_path / "imported").exists()
    assert load_model(tmp_path / "model.pt", "stranger_net.Net")[1] == card


def test_a_card_knows_the_labels_of_its_classes(tmp_path: Path) -> None:
    assert CARD.labels == (1, 2)
    save_model(tmp_path / "model.pt", network(), replace(CARD, labels=(2, 4)))
    assert load_model(tmp_path / "model.pt")[1].labels == (2, 4)
    kept = torch.load(tmp_path / "model.pt", weights_only=True)
    older = {name: value for name, value in kept["card"].items() if name != "labels"}
    torch.save(kept | {"card": older}, tmp_path / "model.pt")
    assert load_model(tmp_path / "model.pt")[1].labels == (1, 2)
    for wrong in ((1,), (1, 1), (0, 1), (1, 256), ("1", "2"), 7):
        torch.save(kept | {"card": kept["card"] | {"labels": wrong}}, tmp_path / "model.pt")
        with pytest.raises(ValueError, match=r"its card is damaged"):
            load_model(tmp_path / "model.pt")
