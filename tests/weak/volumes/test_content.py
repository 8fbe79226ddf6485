"""Bytes that are inflated as they are asked for, against gzip and zlib."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.weak.volumes.content import MEMBERS, Content, Inflated, fill


def content(data: bytes) -> Content:
    return Content("a.gz", io.BytesIO(data), len(data))


def repeated(pair: tuple[bytes, int]) -> bytes:
    return pair[0] * pair[1]


PIECES = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 5000)).map(repeated), max_size=5)


@given(PIECES, st.integers(1, 100_000), st.integers(0, 40))
def test_as_gzip_unpacks_it(pieces: list[bytes], most: int, zeros: int) -> None:
    """Any members, asked for in any steps; never more at a time than was asked for."""
    packed = b"".join(gzip.compress(piece) for piece in pieces or [b""]) + bytes(zeros)
    source, found = Inflated(content(packed), members=True), []
    while piece := source.read(most):
        assert len(piece) <= most
        found.append(piece)
    assert b"".join(found) == gzip.decompress(packed)
    assert source.read(most) == b""


@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from((zlib.compress, gzip.compress)))
def test_a_buffer_is_filled_or_it_is_said(data: bytes, length: int, pack: Callable[[bytes], bytes]) -> None:
    buffer = bytearray(length)
    found = fill(memoryview(buffer), Inflated(content(pack(data))))
    assert found == min(len(data), length + 1)
    assert buffer[:found] == data[:length]


@given(st.binary(min_size=1, max_size=300), st.integers(0, 10**6), st.booleans())
def test_damage_is_one_line(data: bytes, place: int, members: bool) -> None:
    """Cut off anywhere, or with other bytes after the end."""
    packed = (gzip.compress if members else zlib.compress)(data)
    for wrong in (packed[: place % len(packed)], packed + b"more"):
        with pytest.raises(ValueError, match=r"^a.gz cannot be read: .*(too early|damaged|follow)"):
            fill(memoryview(bytearray(1000)), Inflated(content(wrong), members=members))


def test_empty_members_do_not_go_on_for_ever() -> None:
    packed = gzip.compress(b"") * (MEMBERS + 1)
    with pytest.raises(ValueError, match=r"other bytes follow"):
        Inflated(content(packed), members=True).read(1)


def test_what_a_stream_raises_names_the_file() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(ValueError, match=r"^a.gz cannot be read: Input/output error$"):
        Content("a.gz", Broken(), 9).read(1)
