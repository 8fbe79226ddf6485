"""Files of ``torch.save``, read as tensors and plain values: nothing in one is run, and nothing grows.

The pickle in such a file is a program. Of its language, what tensors, lists, names and numbers are written with is
understood here, and the rest is refused: no class is looked up and no function called, whatever the file says.
"""

from __future__ import annotations

import errno
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ringfence import memory
from ringfence.files import opened
from ringfence.hints import first_line, one_line, shown

DEPTH: Final = 24
"""Levels of lists and names; checkpoints have ten."""
VALUES: Final = 5_000_000
"""Of a file, repetitions counted: a long training's checkpoint has some hundred thousand."""
PICKLE: Final = 32_000_000
"""Bytes of the part that is not tensors; in memory it is up to sixty times as large."""
AXES: Final = 8
_DTYPES: Final = {
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch ByteStorage": torch.uint8,
    "torch CharStorage": torch.int8,
    "torch ShortStorage": torch.int16,
    "torch IntStorage": torch.int32,
    "torch LongStorage": torch.int64,
    "torch BoolStorage": torch.bool,
}
_PUSHED: Final = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE")
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Final[dict[str, Callable[[], Any]]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Refused(ValueError):  # noqa: N818 - the file is
    """A file that is damaged, or holds more than tensors and plain values; why, in a few words."""


def is_torch(path: Path) -> bool:
    """Whether a file begins as those of ``torch.save`` do: a zip. No file of safetensors can."""
    with opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


def read_torch(path: Path) -> Any:
    """What ``torch.save`` wrote: dictionaries (for any kind of them), lists, tuples, numbers, text and CPU tensors.

    Raises:
        Refused: with the reason; the caller says of which file.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        memory.check(size, str(path))
        try:
            with zipfile.ZipFile(file) as archive:
                value = _Archive(archive, size).value()
        except Refused:
            raise
        except OSError as error:
            if error.errno != errno.EINVAL:  # the disk's, not that of a zip that says to look before its beginning
                raise
            raise Refused("no file of torch.save: it is damaged") from None
        except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            raise Refused(one_line(f"no file of torch.save: {first_line(error)}")) from None
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
            struct.error,
        ) as error:
            raise Refused(one_line(f"{type(error).__name__}: {first_line(error)}")) from None
    memory.check(_checked_size(value), str(path))
    return value


@dataclass(frozen=True)
class _Name:
    """A class or function that the file names: a word, and no more."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """Numbers in a row, before they are shaped."""

    numbers: Tensor


class _Archive:
    """The zip: members as they are, none compressed, none twice, none beyond the file."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        members = archive.infolist()
        self.archive, self.members = archive, {one.filename: one for one in members}
        if len(self.members) < len(members):
            raise Refused("a part is in it twice")
        if any(one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1 for one in members):
            raise Refused("a part is compressed, which torch never does")
        if (
            any(one.compress_size != one.file_size for one in members)
            or sum(one.file_size for one in members) > size
        ):
            raise Refused("its parts are larger than the file")
        _check_layout(archive, size)
        pickles = [name for name in self.members if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(pickles) != 1:
            raise Refused("no file of torch.save: it has no data.pkl")
        self.prefix = pickles[0].removesuffix("data.pkl")
        order = self.members.get(f"{self.prefix}byteorder")
        if order is not None and self.archive.read(order) != b"little":
            raise Refused("its numbers are not little-endian")
        self._storages: dict[str, Tensor] = {}

    def value(self) -> Any:
        """What the pickle says."""
        info = self.members[f"{self.prefix}data.pkl"]
        if info.file_size > PICKLE:
            raise Refused("it holds too much besides tensors")
        return _unpickled(self.archive.read(info), self.storage)

    def storage(self, key: str) -> Tensor:
        """The bytes of a tensor; the zip's checksum is checked."""
        if key not in self._storages:
            info = self.members.get(f"{self.prefix}data/{key}")
            if info is None:
                raise Refused(f"the numbers of a tensor are missing ({shown(key)})")
            content = torch.empty(info.file_size, dtype=torch.uint8)
            view, done = memoryview(content.numpy()), 0  # type: ignore[arg-type]
            with self.archive.open(info) as member:
                while chunk := member.read(1 << 20):
                    view[done : done + len(chunk)] = chunk
                    done += len(chunk)
            if done != info.file_size:
                raise Refused("it is cut off")
            self._storages[key] = content
        return self._storages[key]


def _check_layout(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse a zip whose parts overlap, or are described in two ways: readers differ in which one they believe."""
    file = archive.fp
    assert file is not None  # noqa: S101 - it was just opened
    file.seek(size - 22)
    end = struct.unpack("<4s4H2LH", file.read(22))
    counts = {
        len(archive.infolist()),
        0xFFFF,
    }  # the second in files of more than 4 GB, where the number is elsewhere
    if end[0] != b"PK\x05\x06" or end[1:3] != (0, 0) or end[-1] or not {*end[3:5]} <= counts:
        raise Refused("no file of torch.save: its end is damaged")
    file.seek(max(0, size - 42))
    mark, disk, place, disks = struct.unpack("<4sLQL", file.read(20))
    if mark == b"PK\x06\x07":  # the same for large files, which torch always writes, too
        file.seek(min(place, size))
        large = struct.unpack("<4sQ2H2L4Q", file.read(56))
        if (disk, disks) != (0, 1) or large[4:6] != (0, 0) or large[6] != large[7] or large[6] not in counts:
            raise Refused("no file of torch.save: its end is damaged")
    before = 0
    for one in sorted(archive.infolist(), key=lambda member: member.header_offset):
        file.seek(one.header_offset)
        local = struct.unpack("<4s5H3L2H", file.read(30))
        begin = one.header_offset + 30 + local[-2] + local[-1]
        described = local[0] == b"PK\x03\x04" and local[2:4] == (one.flag_bits, 0)
        promised = local[6:9] in ((one.CRC, one.file_size, one.file_size), (0, 0, 0)) or local[7] == 0xFFFFFFFF
        folder = one.is_dir() or one.external_attr & 0x10
        if (
            folder
            or not described
            or not promised
            or one.header_offset < before
            or begin + one.file_size > archive.start_dir
        ):
            raise Refused("no file of torch.save: its parts are damaged")
        before = begin + one.file_size


def _unpickled(program: bytes, storage: Callable[[str], Tensor]) -> Any:
    """The value that a pickle of protocol 2 builds, of what is understood here."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, argument, _ in pickletools.genops(program):
        name = opcode.name
        if name in _PUSHED:
            stack.append(argument)
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])  # type: ignore[index]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]  # type: ignore[index]
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in _TUPLES:
            count = _TUPLES[name]
            items = [stack.pop() for _ in range(count)]
            stack.append(tuple(reversed(items)))
        elif name == "GLOBAL":
            stack.append(_Name(str(argument)))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            _a(list, stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else since_mark()
            _set_items(_a(dict, stack[-1]), items)
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop(), storage))
        elif name == "REDUCE":
            arguments, what = _a(tuple, stack.pop()), _a(_Name, stack.pop())
            stack.append(_made(what.name, arguments))
        elif name == "BUILD":  # attributes of an OrderedDict: torch notes versions there
            stack.pop()
            _a(dict, stack[-1])
        elif name == "PROTO":
            if argument != 2:
                raise Refused(f"its pickle has protocol {argument}, and torch's has 2")
        elif name == "STOP":
            break
        else:
            raise Refused(f"it holds more than tensors and plain values ({name})")
    if len(stack) != 1 or marks:
        raise Refused("its pickle ends halfway")
    return stack[0]


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise Refused(f"its pickle uses {shown(value)} as a {kind.__name__.strip('_').lower()}")
    return value


def _set_items(target: dict[Any, Any], items: list[Any]) -> None:
    if len(items) % 2:
        raise Refused("its pickle has a name without a value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (str, int):  # a tuple within tuples would exhaust the stack when it is hashed
            raise Refused(f"it has {shown(key)} for a name")
        target[key] = value


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """What calling that function would have made, of the few that tensors and plain values are written with."""
    if name == "collections OrderedDict" and not arguments:
        return {}
    if name == "collections Counter" and len(arguments) == 1:
        return _a(dict, arguments[0])  # not copied: a file could ask for that a million times
    if name == "torch Size" and len(arguments) == 1:
        return tuple(_a(tuple, arguments[0]))
    if name == "torch._utils _rebuild_parameter" and len(arguments) == 3:
        return _a(Tensor, arguments[0])
    if name == "torch._utils _rebuild_tensor_v2" and len(arguments) in (6, 7):
        return _tensor(*arguments[:4])
    raise Refused(f"it holds more than tensors and plain values: {shown(name.replace(' ', '.'))}")


def _storage(identity: Any, storage: Callable[[str], Tensor]) -> _Storage:
    if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
        raise Refused(f"it refers to {shown(identity)}")
    _, kind, key, _, count = identity
    dtype = _DTYPES.get(_a(_Name, kind).name)
    if dtype is None or not isinstance(key, str) or type(count) is not int or count < 0:
        raise Refused(f"it has a tensor of {shown(_a(_Name, kind).name)}")
    content = storage(key)
    if count * dtype.itemsize > len(content):
        raise Refused(f"a tensor should have {count} numbers, and the file has {len(content)} bytes for it")
    numbers = content[: count * dtype.itemsize]
    return _Storage(numbers != 0 if dtype == torch.bool else numbers.view(dtype))


def _tensor(numbers: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    """The tensor, if it is within its numbers and has no more: torch would make room for what is not there."""
    row: Tensor = _a(_Storage, numbers).numbers
    sizes, steps = _a(tuple, shape), _a(tuple, strides)
    whole = all(type(one) is int and 0 <= one < 2**40 for one in (offset, *sizes, *steps))
    if not whole or len(sizes) != len(steps) or len(sizes) > AXES:
        raise Refused(f"it has a tensor of {shown(sizes)}")
    count = 1
    for size in sizes:
        count *= size
    last = offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) if count else offset
    if count > len(row) or (count and last >= len(row)):
        raise Refused(f"it has a tensor of {shown(sizes)} beyond its numbers")
    return row.as_strided(sizes, steps, offset) if count else row.new_empty(sizes)


def _checked_size(value: Any) -> int:
    """Bytes of all tensors, shared ones as often as they are there; all else must be plain values."""
    level, seen, size = [value], 0, 0
    for _ in range(DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Tensor):
                size += one.numel() * one.element_size()
            elif isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, (list, tuple)):
                inner += one
            elif isinstance(one, (_Name, _Storage)) or (isinstance(one, int) and abs(one) >= 2**63):
                raise Refused(f"it holds more than tensors and plain values: {shown(one)}")
            if seen + len(inner) > VALUES:
                raise Refused(f"it has more than {VALUES:,} values")
        seen += len(inner)
        if not inner:
            return size
        level = inner
    raise Refused(f"lists or names within each other, more than {DEPTH} levels deep")
