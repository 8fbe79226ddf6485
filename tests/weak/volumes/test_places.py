"""Volumes in zips, read where they are: as from a folder, or refused in a line."""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from volume_files import VOXELS

from ringfence.weak.volumes import Place, read_shape, read_volume
from ringfence.weak.volumes.places import DIRECTORY, members, opened_zip


def pack(archive: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(archive, "w", method) as opened:
        for name, data in files.items():
            opened.writestr(name, data)


@pytest.fixture
def files(metaimage: Path, compressed: Path, nifti: Path) -> dict[str, bytes]:
    folder = metaimage.parent
    return {f"deep/er/{file.name}": file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_is_read_as_a_file_is(
    files: dict[str, bytes], metaimage: Path, method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D12: and nothing is unpacked to a disk."""
    archive = metaimage.parent / "all.zip"
    pack(archive, files, method)
    monkeypatch.setattr(tempfile, "mkdtemp", None)
    monkeypatch.setattr(tempfile, "mkstemp", None)
    before = sorted(metaimage.parent.rglob("*"))
    for name in ("Case00.mhd", "Case01.mhd", "a.nii.gz"):
        loose = read_volume(metaimage.with_name(name))
        place = Place(Path("deep/er") / name, archive)
        packed = read_volume(place)
        assert np.array_equal(packed.voxels, loose.voxels)
        assert packed.spacing == loose.spacing
        assert np.array_equal(packed.affine, loose.affine)
        assert str(packed.path) == str(place) == f"{archive}/deep/er/{name}"
        assert read_shape(place) == VOXELS.shape
    assert sorted(metaimage.parent.rglob("*")) == before
    with pytest.raises(FileNotFoundError, match=r"all.zip/Case00.mhd does not exist"):
        read_volume(Place(Path("Case00.mhd"), archive))


def test_bytes_before_the_voxels_of_a_member(files: dict[str, bytes], metaimage: Path) -> None:
    archive = metaimage.parent / "all.zip"
    header, data = files["deep/er/Case00.mhd"], files["deep/er/Case00.raw"]
    for size in (b"7", b"-1"):
        wanted = header.replace(b"DimSize", b"HeaderSize = " + size + b"\nDimSize")
        pack(archive, {"a.mhd": wanted, "Case00.raw": b"foreign" + data})
        assert np.array_equal(read_volume(Place(Path("a.mhd"), archive)).voxels, VOXELS)


def damaged(content: bytes, what: str) -> bytes:
    """A zip with one byte or so changed, in the list of files (PK 1 2) or before the data (PK 3 4)."""
    data = bytearray(content)
    entry = data.rindex(b"PK\1\2", 0, data.rindex(b"Case00.raw"))
    if what == "encrypted":
        data[entry + 8] |= 1
        data[data.rindex(b"PK\3\4", 0, entry) + 6] |= 1
    elif what == "version":
        data[entry + 6] = 200
    elif what == "method":
        data[entry + 10] = 99
    elif what == "crc":
        data[entry + 16] ^= 1
    elif what == "size":
        struct.pack_into("<I", data, entry + 24, 1 << 30)
    elif what == "place":
        struct.pack_into("<I", data, entry + 42, len(data) + 5)
    elif what == "name":
        data[entry + 46] ^= 1
    return bytes(data)


@pytest.mark.parametrize("what", ["encrypted", "version", "method", "crc", "size", "place", "name"])
def test_an_odd_member_is_one_line(files: dict[str, bytes], metaimage: Path, what: str) -> None:
    """D11: of 5,230 fuzzed zips 48 ended in a traceback."""
    archive = metaimage.parent / "all.zip"
    pack(archive, files)
    archive.write_bytes(damaged(archive.read_bytes(), what))
    with pytest.raises((ValueError, OSError), match=r"all.zip") as error:
        read_volume(Place(Path("deep/er/Case00.mhd"), archive))
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(files: dict[str, bytes], metaimage: Path) -> None:
    archive = metaimage.parent / "all.zip"
    pack(archive, files)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("deep/er/Case00.raw", bytes(240))
    with pytest.raises(ValueError, match=r"er/Case00.raw is in the zip 2 times: which is meant\?"):
        read_volume(Place(Path("deep/er/Case00.mhd"), archive))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        pack(archive, files, method)
        with pytest.raises(ValueError, match=r"compressed by method \d+, and only zip's usual one is known"):
            read_volume(Place(Path("deep/er/Case00.mhd"), archive))


def listing(name: bytes, count: int) -> bytes:
    """A zip's list of files alone, all of one name."""
    facts = (20, 0, 20, 0, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    listed = (struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", *facts) + name) * count
    short = min(count, 0xFFFE)
    return listed + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, short, short, len(listed), 0, 0)


def test_lists_of_files(tmp_path: Path) -> None:
    """An empty name, a pipe, no zip, and a list that is too long to be one."""
    pack(tmp_path / "a.zip", {"x": b"", "folder/": b"", "folder/y": b""})
    with opened_zip(tmp_path / "a.zip") as archive:
        assert [one.filename for one in members(archive)] == ["x", "folder/y"]
    os.mkfifo(tmp_path / "pipe.zip")
    (tmp_path / "no.zip").write_bytes(b"PK\3\4")
    (tmp_path / "nameless.zip").write_bytes(listing(b"", 1))
    with opened_zip(tmp_path / "nameless.zip") as archive:
        assert [one.filename for one in archive.infolist()] == [""]
        assert members(archive) == []
    (tmp_path / "long.zip").write_bytes(listing(b"x" * 9, DIRECTORY // 55 + 1))
    for name, message in (
        ("pipe.zip", "is a pipe"),
        ("no.zip", "is not a zip, or a damaged one .*: download it again"),
        ("long.zip", "its list of files has .* bytes, and at most 4,000,000 are read"),
    ):
        with pytest.raises(ValueError, match=message), opened_zip(tmp_path / name):
            pass
