"""A trained model as one file: weights, and all that is needed to use them on somebody else's images.

The file is data: weights are tensors of safetensors, and the card is JSON in its metadata. The network is one of
those that are known to be architectures and nothing else; another one is imported only if the user says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from ringfence.class_path import source
from ringfence.documents import parse_json
from ringfence.hints import first_line, shown
from ringfence.options import inside
from ringfence.weak.inference.card import ModelCard
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.networks.dry_build import state_of
from ringfence.weak.networks.known import KNOWN_NETWORKS, doubt
from ringfence.weak.networks.tensor_file import read_tensors, write_tensors
from ringfence.weak.networks.torch_file import Refused, is_torch, read_torch

__all__ = ["MODEL", "ModelCard", "model_at", "read_model", "save_model"]

MODEL: Final = "model.safetensors"
OLD_MODEL: Final = "model.pt"
"""That of formats 1 and 2, which were files of torch.save."""
FAMILY: Final = "ringfence model "
FORMAT: Final = f"{FAMILY}3"
OLD_FORMATS: Final = (f"{FAMILY}1", f"{FAMILY}2")
CARD: Final = 1_000_000
"""Characters of a card, at most."""
ARGUMENTS: Final = 400
"""Characters of a network's arguments that are shown."""


def save_model(path: Path, network: Tempered, card: ModelCard) -> None:
    """Write a model whole or not at all: plain tensors and plain values, nothing that runs when it is read."""
    facts = json.dumps(card.to_facts(), allow_nan=False)
    write_tensors(path, network.state_dict(), {"format": FORMAT, "card": facts})


def model_at(path: str | Path) -> Path:
    """The file of a model: this one, or the one in the folder that a training wrote."""
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"{path} is not a model: there is no such file")
        return path
    for name in (MODEL, OLD_MODEL):
        if (path / name).is_file():
            return path / name
    raise ValueError(f"{path} is a folder without a {MODEL}: name a model's file")


def read_model(path: str | Path, trust: str | None = None) -> tuple[Tempered, ModelCard]:
    """A model on the CPU, ready to predict.

    Args:
        path: the file.
        trust: the class_path of a network that may be imported although it is not a known one: naming it runs its
            code, with the arguments that the file has for it.
    """
    path = model_at(path)
    facts, weights = _read(path)
    try:
        card = ModelCard.from_facts(facts)
    except ValueError as error:
        raise ValueError(
            f"{path} is not a model that can be used: its card is damaged ({first_line(error)})"
        ) from None
    unsure = doubt(card.class_path, card.init_args)
    if unsure is not None and card.class_path != trust:
        raise ValueError(_asks_for_trust(path, card, unsure))
    known = KNOWN_NETWORKS[card.class_path][0] if unsure is None else None
    make = partial(_network, card, known)
    if known is not None:  # somebody's own network may not be one that can be made without its numbers
        with inside(f"{path}: "):
            state = state_of(make, len(weights))
        _check_weights(path, weights, state)
    with inside(f"{path}: "):
        network = make()
    _check_weights(path, weights, network.state_dict())
    network.load_state_dict(weights)
    return network.eval(), card


def imported_from(class_path: str) -> str:
    """What trusting a network means, in words: what will be imported, and from where."""
    file = source(class_path)
    return f"{class_path} is imported from {file if file else 'a module that is not there'}, and its code runs"


def _network(card: ModelCard, known: str | None) -> Tempered:
    """With a known network's usual name; nothing of the current folder is looked at for one."""
    made = build_network(known or card.class_path, card.init_args, here=known is None)
    return Tempered(made, len(card.classes))


def _asks_for_trust(path: Path, card: ModelCard, unsure: str) -> str:
    arguments = repr(card.init_args)
    arguments = arguments if len(arguments) <= ARGUMENTS else f"{arguments[:ARGUMENTS]}..."
    return (
        f"{path} uses the network {card.class_path}, whose code would run: {unsure}. "
        f"{imported_from(card.class_path)}, with the arguments {arguments}; if you trust it, "
        f"say so with --trust {card.class_path}"
    )


def _check_weights(path: Path, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not exactly the network's: names, shapes, and finite numbers of the same kind."""
    reason = None
    if missing := [name for name in state if name not in weights]:
        reason = f"{missing[0]} is missing"
    elif more := [name for name in weights if name not in state]:
        reason = f"the network has no {shown(more[0])}"
    else:
        for name, wanted in state.items():
            found = weights[name]
            if found.shape != wanted.shape:
                reason = f"{name} is {list(found.shape)}, and the network's is {list(wanted.shape)}"
            elif found.dtype != wanted.dtype:
                reason = f"{name} is of {found.dtype}, and the network's of {wanted.dtype}"
            elif found.is_floating_point() and not bool(found.isfinite().all()):
                reason = f"{name} is not finite"
            if reason:
                break
    if reason:
        raise ValueError(f"{path}: its weights do not fit its network: {reason}")


def _read(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """The card's facts, and the weights; of a file that is a model of a known format."""
    old = is_torch(path)
    expected = f"it should be what `ringfence train` wrote as {MODEL} ('{FORMAT}')"
    try:
        kept: Any = read_torch(path) if old else _new(path)
    except Refused as error:
        raise ValueError(
            f"{path} is not a model that can be used: it is damaged, or holds more than plain tensors "
            f"({first_line(error)}); {expected}"
        ) from None
    format_ = kept.get("format") if isinstance(kept, dict) else None
    if isinstance(format_, str) and format_.startswith(FAMILY) and format_ not in (FORMAT, *OLD_FORMATS):
        raise ValueError(
            f"{path} is a {shown(format_)}, and this ringfence reads up to '{FORMAT}': update ringfence"
        )
    if not isinstance(format_, str) or format_ not in (OLD_FORMATS if old else (FORMAT,)):
        raise ValueError(f"{path} is not a model that can be used: {expected}")
    weights = kept.get("weights")
    if not isinstance(weights, dict):
        raise ValueError(f"{path}: its weights do not fit its network: there are none")
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{path}: its weights do not fit its network: {shown(name)} is no tensor")
    if old:
        return kept.get("card"), weights
    text = kept["card"]
    if len(text) > CARD:
        raise ValueError(f"{path} is not a model that can be used: its card has {len(text):,} characters")
    return parse_json(text, f"{path}: its card"), weights


def _new(path: Path) -> dict[str, Any]:
    weights, words = read_tensors(path)
    return {"format": words.get("format"), "card": words.get("card", ""), "weights": weights}
