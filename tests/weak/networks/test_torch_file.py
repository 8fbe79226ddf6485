"""Files of torch.save: read as torch reads them, and refused where they are more than data."""

from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from ringfence.weak.networks.torch_file import Refused, is_torch, read_torch

TREE = {
    "epoch": 3,
    "large": 2**40,
    "rate": 1e-3,
    "text": "é",
    "nothing": None,
    "flags": [True, False],
    "nested": {"pair": (1, 2.5), 7: [{"x": torch.arange(6).reshape(2, 3)}]},
    "state": OrderedDict(a=torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), b=torch.tensor(1.5)),
    "kinds": [
        torch.ones(3, dtype=kind)
        for kind in (torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int32, torch.bool)
    ],
    "shared": [torch.zeros(4)[1:], torch.empty(0, 3)],
}


def same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert type(one) is type(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    else:
        assert one == other


def test_what_torch_writes_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    torch.save(TREE, tmp_path / "x.pt")
    assert is_torch(tmp_path / "x.pt")
    same(torch.load(tmp_path / "x.pt", weights_only=True), read_torch(tmp_path / "x.pt"))
    torch.save({"milestones": Counter({3: 1})}, tmp_path / "x.pt")
    assert read_torch(tmp_path / "x.pt") == {"milestones": {3: 1}}


class Runs:
    """What a malicious pickle would do."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, ("ran",))


def repacked(path: Path, program: bytes) -> Path:
    """A file with another pickle, and its tensors as they were."""
    torch.save({"x": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, program if name.endswith("data.pkl") else content)
    return path


def tensor_of(size: str, stride: str, count: int = 4, offset: int = 0) -> bytes:
    """A pickle of one tensor on the file's four numbers, of any shape."""
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + pickle.dumps(count, 2)[2:-1] + b"tQ" + pickle.dumps(offset, 2)[2:-1]
        + pickle.dumps(eval(size), 2)[2:-1].replace(b"q\x00", b"") + pickle.dumps(eval(stride), 2)[2:-1].replace(b"q\x00", b"")
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )  # fmt: skip


def test_a_tensor_stays_within_its_numbers(tmp_path: Path) -> None:
    """D8: torch makes room for what a file says, or repeats a number without end."""
    assert read_torch(repacked(tmp_path / "x.pt", tensor_of("(2, 2)", "(2, 1)"))).shape == (2, 2)
    for size, stride, count, offset in (
        ("(5,)", "(1,)", 4, 0),
        ("(2, 2)", "(4, 1)", 4, 0),
        ("(10**6, 10**6)", "(0, 0)", 4, 0),
        ("(4,)", "(1,)", 4, 1),
        ("(4,)", "(1,)", 10**12, 0),
        ("(4,)", "(-1,)", 4, 3),
        ("(4,)", "(1, 1)", 4, 0),
        ("(2**62, 4)", "(1, 1)", 4, 0),
    ):
        with pytest.raises(Refused):
            read_torch(repacked(tmp_path / "x.pt", tensor_of(size, stride, count, offset)))


@pytest.mark.parametrize(
    "program",
    [
        pickle.dumps(Runs(), 2),
        pickle.dumps(Runs(), 4),
        pickle.dumps({(1, 2): 3}, 2),
        b"\x80\x02ctorch\nTensor\nM\xff\xffM\xff\xff\x86R.",
        b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x02" + b"(" * 5000 + b"l" * 5000 + b".",
        b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".",
        b"\x80\x02r\xff\xff\xff\xff.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x02N",
        b"\x80\x02",
        b"",
        pickle.dumps(10**400, 2),
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02]q\x00"
        + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(23))
        + b".",
    ],
)
def test_nothing_of_a_pickle_runs_or_grows(program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D1, D8, D11: functions, huge objects, depths, cycles, numbers beyond 64 bits."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused):
        read_torch(repacked(tmp_path / "x.pt", program))
    assert not (tmp_path / "ran").exists()


def test_a_zip_that_torch_would_not_write_is_refused(tmp_path: Path) -> None:
    """D8: compressed parts, parts that are there twice, damaged bytes, formats from before the zip."""
    path = tmp_path / "x.pt"
    torch.save(TREE, path)
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content)
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile says that names come twice
        for name, content in [*members.items(), *members.items()]:
            new.writestr(name, content)
    old_format = io.BytesIO()
    torch.save(TREE, old_format, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    middle = whole.index(members["x/data/1"])
    damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (
        packed.getvalue(),
        twice.getvalue(),
        old_format.getvalue(),
        damaged,
        whole[:-30],
        b"PK\x03\x04",
    ):
        path.write_bytes(content)
        with pytest.raises(Refused):
            read_torch(path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pt")
    with pytest.raises(ValueError, match="is a pipe"):
        read_torch(tmp_path / "x.pt")


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(torch.zeros(100_000), tmp_path / "x.pt")
    monkeypatch.setenv("RINGFENCE_MEMORY", "100kB")
    with pytest.raises(ValueError, match=r"x.pt would take 4\d\d kB of memory, and the limit is 100 kB"):
        read_torch(tmp_path / "x.pt")
