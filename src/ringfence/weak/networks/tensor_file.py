"""Named tensors and a few words as one file of safetensors: nothing in it can be anything else."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from ringfence import documents, memory
from ringfence.extras import require
from ringfence.files import read_bytes, write_bytes
from ringfence.hints import first_line, one_line, shown
from ringfence.weak.networks.torch_file import Refused

HEADER: Final = 16_000_000
"""Bytes of names, shapes and words, at most."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> None:
    """Write them whole or not at all, with ``words`` as the file's metadata."""
    require("safetensors", "writing tensors", "train")
    from safetensors.torch import save

    # copies: the format has no strides, and no two tensors may share their numbers
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, _in_order(save(plain, dict(words))))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors on the CPU, and the words.

    Raises:
        Refused: with the reason; the caller says of which file.
    """
    require("safetensors", "reading tensors", "train")
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_bytes(path, memory.limit())
    words = _words(content)
    try:
        return dict(load(content)), words
    except (SafetensorError, ValueError, TypeError, LookupError, RuntimeError, OverflowError) as error:
        raise Refused(one_line(f"{type(error).__name__}: {first_line(error)}")) from None


def _in_order(content: bytes) -> bytes:
    """The same file with its words by name: the library has them in another order each time."""
    length = struct.unpack("<Q", content[:8])[0]
    header = documents.parse_json(content[8 : 8 + length].decode("utf-8"), "the header")
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def _words(content: bytes) -> dict[str, str]:
    """The metadata, which the library reads from named files alone; it is more generous about tensors, too."""
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    if not 2 <= length <= min(len(content) - 8, HEADER):
        raise Refused("no file of safetensors")
    try:
        header: Any = documents.parse_json(content[8 : 8 + length].decode("utf-8"), "its header")
    except ValueError as error:  # UnicodeDecodeError is one, too
        raise Refused(one_line(first_line(error))) from None
    words = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
        raise Refused("its words are damaged")
    for name, facts in header.items():
        if name != "__metadata__" and (
            not isinstance(facts, dict) or facts.keys() != {"dtype", "shape", "data_offsets"}
        ):
            raise Refused(f"its header has {shown(facts)} for a tensor")
    return words
