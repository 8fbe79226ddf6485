"""A trained model as one file: weights, and all that is needed to use them on somebody else's images."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from ringfence.files import replaced
from ringfence.hints import first_line
from ringfence.weak.prepared.prepared_set import checked_labels
from ringfence.weak.prepared.preprocessing import Preprocessing
from ringfence.weak.training.networks import Tempered, build_network
from ringfence.weak.training.settings import flip_axes

MODEL: Final = "model.pt"
FAMILY: Final = "ringfence model "
FORMAT: Final = f"{FAMILY}2"
FIRST_FORMAT: Final = f"{FAMILY}1"
"""Its card has the size of slices, and mirrors for flips; percentiles were those that are the default still."""
TRUSTED: Final = ("monai.", "torch.")
"""Packages whose classes a model file may name; to import another one is for the user to allow."""


@dataclass(frozen=True)
class ModelCard:
    """What a model is, and expects.

    Attributes:
        class_path: of the network.
        init_args: of the network.
        channels: names of the images' channels.
        classes: names of the foreground classes, in the order of the network's answers.
        preprocessing: how voxels become what the network reads.
        patch: None for slices; slices, height and width of the patches of a model of volumes.
        method: how it was trained.
        commit: of the code that trained it.
        labels: the classes' values in masks, in the same order; default: 1, 2, ...
        flips: what its predictions are averaged over, by the names of ``FLIPS``.
    """

    class_path: str
    init_args: dict[str, Any]
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    patch: tuple[int, int, int] | None = None
    method: str = ""
    commit: str = ""
    labels: tuple[int, ...] = ()
    flips: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        flip_axes(self.flips)
        object.__setattr__(self, "labels", checked_labels(self.labels, self.classes))


def save_model(path: Path, network: Tempered, card: ModelCard) -> None:
    """Write a model whole or not at all: plain tensors and plain values, nothing that runs when it is read."""
    weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    facts = asdict(card) | {"preprocessing": card.preprocessing.to_facts()}
    with replaced(path) as part:
        torch.save({"format": FORMAT, "card": facts, "weights": weights}, part)


def model_at(path: str | Path) -> Path:
    """The file of a model: this one, or the one in the folder that a training wrote."""
    path = Path(path)
    if path.is_dir() and (path / MODEL).is_file():
        return path / MODEL
    if path.is_dir():
        raise ValueError(f"{path} is a folder without a {MODEL}: name a model's file")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a model: there is no such file")
    return path


def read_model(path: str | Path, trust: str | None = None) -> tuple[Tempered, ModelCard]:
    """A model on the CPU, ready to predict.

    Args:
        path: the file.
        trust: the class_path of a network outside of MONAI and torch that may be imported: naming it runs its code.
    """
    path = model_at(path)
    kept = _read(path)
    try:
        card = _card(kept["card"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(f"{path} is not a model that can be used: its card is damaged ({reason})") from None
    if not card.class_path.startswith(TRUSTED) and card.class_path != trust:
        raise ValueError(
            f"{path} uses the network {card.class_path}, whose code would run: if you trust it, "
            f"say so with --trust {card.class_path}"
        )
    network = Tempered(build_network(card.class_path, card.init_args), len(card.classes))
    try:
        network.load_state_dict(kept["weights"])
    except (RuntimeError, KeyError, TypeError) as error:
        _, *reasons = str(error).strip().splitlines() or [""]  # torch's first line only says that there are some
        reason = reasons[0].strip() if reasons else first_line(error)
        raise ValueError(f"{path}: its weights do not fit its network: {reason}") from None
    return network.eval(), card


def _read(path: Path) -> dict[str, Any]:
    expected = f"it should be what `ringfence train` wrote as {MODEL} ('{FORMAT}')"
    try:
        with warnings.catch_warnings():  # of files that are none: what is said of them below is enough
            warnings.simplefilter("ignore")
            kept = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise PermissionError(f"{path} may not be read: permission denied") from None
    except Exception:  # zipfile's, pickle's, torch's own, whose advice would be to run what is in it
        raise ValueError(
            f"{path} is not a model that can be used: it is damaged, or holds more than plain tensors; {expected}"
        ) from None
    format_ = kept.get("format") if isinstance(kept, dict) else None
    if isinstance(format_, str) and format_.startswith(FAMILY) and format_ not in (FORMAT, FIRST_FORMAT):
        raise ValueError(f"{path} is a '{format_}', and this ringfence reads up to '{FORMAT}': update ringfence")
    if format_ not in (FORMAT, FIRST_FORMAT):
        raise ValueError(f"{path} is not a model that can be used: {expected}")
    return dict(kept)


def _card(facts: Any) -> ModelCard:
    """A card from plain values: lists may have become of tuples. The first format's is brought to today's."""
    facts = dict(facts)
    if "preprocessing" not in facts:
        facts["preprocessing"] = {"size": list(facts.pop("size")), "percentiles": [0.5, 99.5]}
        facts["flips"] = facts.pop("mirrors", ())
    patch = facts.get("patch")
    card = ModelCard(
        **{
            **facts,
            "channels": tuple(map(str, facts["channels"])),
            "classes": tuple(map(str, facts["classes"])),
            "preprocessing": Preprocessing.from_facts(facts["preprocessing"]),
            "patch": None if patch is None else tuple(int(side) for side in patch),
            "labels": tuple(facts.get("labels", ())),
            "flips": tuple(map(str, facts.get("flips", ()))),
        }
    )
    if card.patch is not None and (len(card.patch) != 3 or min(card.patch) < 1):
        raise ValueError(f"patches of {card.patch}")
    if not card.channels or not card.classes or len(set(card.classes)) < len(card.classes):
        raise ValueError(f"channels {card.channels}, classes {card.classes}")
    if card.patch is None and "slices" in card.flips:
        raise ValueError("a model of slices, flipped along slices")
    return card
