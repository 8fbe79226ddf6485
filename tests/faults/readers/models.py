"""Models from somebody else: model.safetensors, and the older model.pt. Weights must be those of the file."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from faults.mutations.archives import mutate_records, mutate_zip
from faults.mutations.raw import mutate_bytes
from faults.mutations.trees import RAW, hostile, mutate_tree, to_json
from faults.reader import Reader, expect
from ringfence.weak.inference.model_file import MODEL, ModelCard, read_model, save_model
from ringfence.weak.networks.build import Tempered, build_network
from ringfence.weak.prepared.preprocessing import Preprocessing

UNET = (
    "monai.networks.nets.UNet",
    {"spatial_dims": 2, "in_channels": 1, "out_channels": 2, "channels": [2, 2], "strides": [2], "norm": "batch"},
)
TYPES = {
    "F32": "<f4",
    "F64": "<f8",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "?",
}
ATTACKS = (
    {
        "class_path": "monai.losses.PerceptualLoss",
        "init_args": {
            "spatial_dims": 3,
            "network_type": "medicalnet_resnet10_23datasets",
            "cache_dir": "hub",
            "is_fake_3d": False,
        },
    },
    {"class_path": "monai.networks.nets.HoVerNet", "init_args": {"pretrained_url": "http://127.0.0.1:9/x"}},
    {"class_path": "torch.hub.load", "init_args": {"repo_or_dir": "hub", "source": "local", "model": "x"}},
    {"class_path": "monai.networks.nets.BasicUNet", "init_args": {"features": [30000] * 6}},
    {"class_path": "canary_module.Thing", "init_args": {}},
    {"class_path": "torch.nn.Linear", "init_args": {"in_features": 10**6, "out_features": 10**6}},
    {
        "class_path": "monai.networks.nets.ViT",
        "init_args": {"in_channels": 1, "img_size": [10**5, 10**5], "patch_size": [1, 1]},
    },
    {"class_path": "monai.networks.nets.resnet.resnet10", "init_args": {"pretrained": "http://127.0.0.1:9/x"}},
    {
        "class_path": "monai.networks.nets.SwinUNETR",
        "init_args": {
            "in_channels": 1,
            "out_channels": 2,
            "img_size": [64, 64],
            "norm_name": ["instance", {"x": 1}],
        },
    },
)
"""What D1 is made of, and its kin."""


def card() -> ModelCard:
    """Of a tiny network."""
    return ModelCard(*UNET, ("T2",), ("gland",), Preprocessing((16, 16)), method="penalty", flips=("left-right",))


def network() -> Tempered:
    """Its weights are always the same."""
    torch.manual_seed(0)
    return Tempered(build_network(*UNET), 1)


def attacked(rng: random.Random, facts: dict[str, Any]) -> dict[str, Any]:
    """A card with other values, or with an attack."""
    return facts | rng.choice(ATTACKS) if rng.random() < 0.15 else mutate_tree(rng, facts)


class ModelFile(Reader):
    """As it is written today."""

    name: ClassVar[str] = "model"
    count: ClassVar[int] = 20_000

    def prepare(self, folder: Path) -> None:
        save_model(folder / MODEL, network(), card())
        self.data, self.zipped = (folder / MODEL).read_bytes(), zipfile.is_zipfile(folder / MODEL)
        if not self.zipped:
            length = struct.unpack("<Q", self.data[:8])[0]
            self.header, self.behind = json.loads(self.data[8 : 8 + length]), self.data[8 + length :]

    @property
    def valid(self) -> int:
        return 1

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / MODEL
        path.write_bytes(self.data if number < self.valid else self.damaged(rng))
        return path

    def damaged(self, rng: random.Random) -> bytes:
        """Other bytes, another header, another card."""
        kind = rng.random()
        if self.zipped or kind < 0.2:
            return mutate_bytes(rng, self.data)
        header, behind = json.loads(json.dumps(self.header)), self.behind
        metadata = header.get("__metadata__", {})
        if kind < 0.6 and metadata:
            name = rng.choice(list(metadata))
            if metadata[name].startswith("{"):
                metadata[name] = to_json(rng, attacked(rng, json.loads(metadata[name]))).decode("utf-8", "replace")
            else:
                header = mutate_tree(rng, header)
        elif kind < 0.9:
            name = rng.choice([one for one in header if one != "__metadata__"])
            header[name] = (
                mutate_tree(rng, header[name]) if rng.random() < 0.8 else header.pop(name) and hostile(rng)
            )
        else:
            behind = mutate_bytes(rng, behind) if rng.random() < 0.8 else behind[: rng.randrange(len(behind))]
        text = to_json(rng, header)
        text += b" " * (-len(text) % 8)
        length = (
            len(text)
            if rng.random() < 0.95
            else rng.choice((0, 1, 2**63, 2**64 - 1, len(text) - 1, len(text) + 8, 10**9))
        )
        return struct.pack("<Q", length) + text + behind

    def read(self, path: Path) -> Any:
        return read_model(path)

    def check(self, path: Path, found: Any) -> str | None:
        data = path.read_bytes()
        if self.zipped:
            try:
                kept = torch.load(path, weights_only=True)
            except Exception:  # it is stricter about zips: then it must be the valid file but for the zip
                kept = self.tree
            return _same(found[0], {name: tensor.detach().numpy() for name, tensor in kept["weights"].items()})
        length = struct.unpack("<Q", data[:8])[0]
        header, behind = json.loads(data[8 : 8 + length]), data[8 + length :]
        weights = {}
        for name, one in header.items():
            if name != "__metadata__":
                begin, end = one["data_offsets"]
                weights[name] = np.frombuffer(behind[begin:end], TYPES[one["dtype"]]).reshape(one["shape"])
        return _same(found[0], weights)


class OldModel(ModelFile):
    """As torch.save wrote it."""

    name: ClassVar[str] = "model-pt"

    def prepare(self, folder: Path) -> None:
        facts = asdict(card()) | {"preprocessing": card().preprocessing.to_facts()}
        weights = {name: tensor.detach() for name, tensor in network().state_dict().items()}
        self.tree = {"format": "ringfence model 2", "card": facts, "weights": weights}
        torch.save(self.tree, folder / "model.pt")
        self.data, self.zipped = (folder / "model.pt").read_bytes(), True
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / "model.pt"
        path.write_bytes(self.data if number < self.valid else damaged_pt(rng, self.tree, self.data, self.members))
        return path


def damaged_pt(rng: random.Random, tree: dict[str, Any], data: bytes, members: dict[str, bytes]) -> bytes:
    """A file of torch.save with another tree, another pickle, or other bytes."""
    kind = rng.random()
    if kind < 0.15:
        return mutate_records(rng, data)
    if kind < 0.3:
        return mutate_zip(rng, members, zipfile.ZIP_STORED)
    if kind < 0.45:
        name = next(one for one in members if one.endswith("data.pkl"))
        return _stored(members | {name: mutate_bytes(rng, members[name])})
    changed = _tensors(rng, tree) if kind < 0.75 else _values(rng, tree)
    file = io.BytesIO()
    torch.save(changed, file)
    return file.getvalue()


def _stored(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _values(rng: random.Random, tree: dict[str, Any]) -> Any:
    if "card" in tree and rng.random() < 0.8:
        return tree | {"card": _plain(attacked(rng, tree["card"]))}
    return _plain(mutate_tree(rng, tree))


def _plain(tree: Any) -> Any:
    """Without the strings that stand for raw text, which only JSON and YAML know."""
    if isinstance(tree, str) and tree.startswith(RAW):
        return int(tree.removeprefix(RAW)) if tree.removeprefix(RAW)[:401].isdigit() and len(tree) < 450 else [[[]]]
    if isinstance(tree, dict):
        return {key: _plain(one) for key, one in tree.items()}
    return [_plain(one) for one in tree] if isinstance(tree, list) else tree


def _tensors(rng: random.Random, tree: Any) -> Any:
    """One of the tensors in a tree is another one, or something else."""
    places: list[tuple[Any, Any]] = []

    def copied(one: Any) -> Any:
        made: Any = (
            {key: copied(value) for key, value in one.items()}
            if isinstance(one, dict)
            else [copied(value) for value in one]
            if isinstance(one, list)
            else one
        )
        if isinstance(made, (dict, list)):
            places.extend(
                (made, key)
                for key in (made if isinstance(made, dict) else range(len(made)))
                if isinstance(made[key], torch.Tensor)
            )
        return made

    changed = copied(tree)
    holder, key = rng.choice(places)
    holder[key] = _other(rng, holder[key])
    if rng.random() < 0.2 and isinstance(holder, dict):
        holder[rng.choice(("x", 3, None, "", "network.é", key))] = holder.pop(key)
    return changed


def _other(rng: random.Random, tensor: torch.Tensor) -> Any:
    flat = tensor.flatten()
    change = rng.choice(
        (
            lambda: tensor.double(),
            lambda: tensor.half(),
            lambda: tensor.to(torch.complex64),
            lambda: tensor.to(torch.int8),
            lambda: tensor[None],
            lambda: flat[: max(1, flat.numel() // 2)],
            lambda: torch.cat([flat, flat]),
            lambda: torch.zeros(0),
            lambda: torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor - 1,
            lambda: torch.zeros(1).expand(tensor.shape),
            lambda: flat.as_strided((2, 2), (0, 0)) if flat.numel() else flat,
            lambda: tensor.to_sparse() if tensor.ndim else tensor,
            lambda: tensor.to("meta"),
            lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8) if tensor.ndim else tensor,
            lambda: flat.tolist()[:9],
            lambda: None,
            lambda: 3,
            lambda: "x",
            lambda: torch.nn.Parameter(tensor) if tensor.is_floating_point() else tensor,
            lambda: {"a": tensor},
        )
    )
    try:
        return change()
    except (RuntimeError, NotImplementedError):  # not of such a tensor
        return None


def _same(found: Any, weights: dict[str, Any]) -> str | None:
    ours = {name: tensor.detach().numpy() for name, tensor in found.state_dict().items()}
    expect(set(ours) == set(weights), f"other weights: {sorted(set(ours) ^ set(weights))[:5]}")
    for name, array in ours.items():
        expect(
            array.shape == weights[name].shape, f"{name} is {array.shape}, and {weights[name].shape} in the file"
        )
        expect(
            array.dtype == weights[name].dtype, f"{name} is {array.dtype}, and {weights[name].dtype} in the file"
        )
        expect(np.array_equal(array, weights[name], equal_nan=True), f"{name} differs")
        expect(np.isfinite(array).all(), f"{name} is not finite")
    return None
