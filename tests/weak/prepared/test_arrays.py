"""Case files from elsewhere: what the manifest describes, or one line; against NumPy's own reader."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prepared_sets import make_prepared
from ringfence.files import checksum
from ringfence.weak.prepared import PreparedSet, read_prepared
from ringfence.weak.prepared.arrays import Damaged, most_bytes, read_arrays
from ringfence.weak.prepared.prepared_set import MANIFEST

SHAPES = {"image": (2, 1, 3, 4), "mask": (2, 3, 4)}


def archive(compressed: bool = True, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def example() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.integers(0, 200, shape, dtype=np.uint8) for name, shape in SHAPES.items()}


def with_bytes(prepared: PreparedSet, content: bytes) -> PreparedSet:
    """The set with other bytes for its first case, and a manifest that describes them."""
    (prepared.path / prepared.cases[0].file).write_bytes(content)
    first = replace(prepared.cases[0], sha256=sha256(content).hexdigest())
    return replace(prepared, cases=(first, *prepared.cases[1:]))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_wrote_is_read(compressed: bool, order: str) -> None:
    arrays = {name: np.asarray(one, order=order) for name, one in example().items()}
    found = read_arrays(archive(compressed, **arrays), SHAPES)
    for name, one in arrays.items():
        assert np.array_equal(found[name], one)
        assert found[name].flags.c_contiguous
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros(SHAPES["image"], np.uint16)}, "image is of type uint16; it should be uint8"),
        ({"image": np.full(SHAPES["image"], np.nan, np.float32)}, "image is of type float32; it should be uint8"),
        ({"image": np.zeros(SHAPES["image"], np.complex128)}, "image is of type complex128; it should be uint8"),
        ({"image": np.zeros(SHAPES["image"], np.int8)}, "image is of type int8; it should be uint8"),
        ({"mask": np.zeros(SHAPES["mask"], bool)}, "mask is of type bool; it should be uint8"),
        ({"mask": np.zeros((2, 4, 3), np.uint8)}, "mask is [2, 4, 3], and the manifest says [2, 3, 4]"),
        ({"more": np.zeros(1, np.uint8)}, "it holds ['image.npy', 'mask.npy', 'more.npy'], and should hold"),
    ],
    ids=str,
)
def test_another_type_or_shape_is_refused(change: dict[str, np.ndarray], message: str) -> None:
    """D9 and D11: 537 files of another type were taken, and uint16 ended in a traceback."""
    with pytest.raises(Damaged) as caught:
        read_arrays(archive(**(example() | change)), SHAPES)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("at", "value"),
    [("version", b"\xff\xff"), ("encrypted", b"\x01\x00"), ("method", b"\x63\x00"), ("name", b"\x00" * 9)],
)
def test_zips_with_odd_members_are_one_line(at: str, value: bytes) -> None:
    """D11: an odd version, encryption, an unknown way to pack, an empty name."""
    content = bytearray(archive(**example()))
    directory = content.index(b"PK\x01\x02")
    place = directory + {"version": 6, "encrypted": 8, "method": 10, "name": 46}[at]
    content[place : place + len(value)] = value
    with pytest.raises(Damaged) as caught:
        read_arrays(bytes(content), SHAPES)
    assert len(str(caught.value).splitlines()) == 1


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """D8: a small file that unpacks to a lot; what the manifest promises is all the memory that is taken."""
    bomb = archive(image=np.zeros((2, 1, 3000, 4000), np.uint8), mask=np.zeros(SHAPES["mask"], np.uint8))
    tracemalloc.start()
    with pytest.raises(Damaged, match="image is "):
        read_arrays(bomb, SHAPES)
    header = archive(image=np.zeros(SHAPES["image"], np.uint8))
    with zipfile.ZipFile(io.BytesIO(header)) as opened:
        honest = opened.read("image.npy")
    longer = io.BytesIO()
    with zipfile.ZipFile(longer, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("image.npy", honest + bytes(20_000_000))
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    with pytest.raises(Damaged, match="does not have the 24 bytes of its shape"):
        read_arrays(longer.getvalue(), {"image": SHAPES["image"]})
    assert tracemalloc.get_traced_memory()[1] - before < 3_000_000
    tracemalloc.stop()


def test_a_file_longer_than_promised_is_not_read(tmp_path: Path) -> None:
    """D8: by its size alone, before a byte of it is looked at."""
    prepared = make_prepared(tmp_path)
    prepared = with_bytes(prepared, bytes(1_000_000))
    with pytest.raises(ValueError, match="has 1,000,000 bytes, and at most"):
        prepared.load(prepared.cases[0])


def test_more_memory_than_allowed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D8: a manifest may promise what no machine has."""
    prepared = make_prepared(tmp_path)
    monkeypatch.setenv("RINGFENCE_MEMORY", "1kB")
    with pytest.raises(ValueError, match=r"case0.npz would take .* of memory, and the limit is 1 kB"):
        prepared.load(prepared.cases[0])


def test_a_swapped_case_is_refused(tmp_path: Path) -> None:
    """D9: another image under the name of a case, whole and of the same shape."""
    prepared = make_prepared(tmp_path)
    shutil.copy(tmp_path / "case1.npz", tmp_path / "case0.npz")
    read = read_prepared(tmp_path)
    with pytest.raises(ValueError, match=r"case0.npz is not the file that manifest.json describes \(its checksum"):
        read.load(read.cases[0])
    image, _ = read.load(read.cases[1])
    with np.load(tmp_path / "case1.npz") as arrays:
        assert np.array_equal(image, arrays["image"])
    assert prepared == read


def test_the_first_format_is_checked_too(tmp_path: Path) -> None:
    """D9: manifests of format 1 have checksums as well."""
    facts = json.loads((make_prepared(tmp_path).path / MANIFEST).read_text())
    facts |= {"format": "ringfence prepared set 1", "size": [24, 20]}
    del facts["preprocessing"], facts["labels"]
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    shutil.copy(tmp_path / "case1.npz", tmp_path / "case0.npz")
    read = read_prepared(tmp_path)
    with pytest.raises(ValueError, match="its checksum differs"):
        read.load(read.cases[0])


def test_the_bound_on_a_files_length_lets_noise_through() -> None:
    """What cannot be packed becomes longer by packing it: never by as much as is allowed."""
    shape = (50, 1, 300, 300)
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert len(archive(True, image=noise)) <= most_bytes({"image": shape})


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_bytes_are_a_result_or_one_line(data: Any) -> None:
    """D11: bytes changed anywhere, headers above all; the CRC vouches for what is accepted."""
    whole = archive(data.draw(st.booleans()), **example())
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_arrays(bytes(broken), SHAPES)
    except Damaged as error:
        lines, found = str(error).splitlines(), example()
    else:
        lines = ["read"]
    assert len(lines) == 1
    assert all(np.array_equal(found[name], one) for name, one in example().items())


def changed(path: Path, **case: Any) -> str:
    """What is said of a manifest whose first case has other fields."""
    facts = json.loads((make_prepared(path).path / MANIFEST).read_text())
    facts["cases"][0] |= case
    (path / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="cannot be used: cases") as caught:
        read_prepared(path)
    return str(caught.value).partition("cannot be used: ")[2]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"masked": "no"}, "cases[0]: masked is 'no'; true or false is needed"),
        ({"masked": 1}, "cases[0]: masked is 1; true or false is needed"),
        ({"shape": [6, 24.7, 20]}, "cases[0]: shape is [6, 24.7, 20]; slices, height and width are needed"),
        ({"shape": [6, 24, True]}, "cases[0]: shape is [6, 24, True]; slices, height"),
        ({"shape": [0, 24, 20]}, "cases[0]: shape is [0, 24, 20]; slices, height"),
        ({"shape": "624"}, "cases[0]: shape is '624'; slices, height"),
        ({"spacing": [1, 0, 1]}, "cases[0]: spacing is [1, 0, 1]; three lengths above 0 are needed, or null"),
        ({"spacing": [1, "1", 1]}, "cases[0]: spacing is [1, '1', 1]; three lengths"),
        ({"sha256": "a" * 63}, "cases[0]: sha256 is 'aaa"),
        ({"sha256": None}, "cases[0]: sha256 is None; 64 hexadecimal digits are needed"),
        ({"name": 3}, "cases[0]: name is 3; a text is needed"),
        ({"split": ["train"]}, "cases[0]: split is ['train']: train or validation"),
        ({"file": "../case0.npz"}, "cases[0]: its file '../case0.npz' should be in the set's own folder"),
        ({"file": "a\0b"}, "cases[0]: its file 'a\\x00b' should be in the set's own folder"),
        ({"file": "a" * 300}, "cases[0]: its file 'aaa"),
    ],
    ids=str,
)
def test_fields_are_what_they_must_be(tmp_path: Path, case: dict[str, Any], message: str) -> None:
    """D9 and D11: "no" was taken for True, and 24.7 for 24."""
    assert changed(tmp_path, **case).startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        '{"a":' * 3000,
        '{"cases": [{"shape": [1e999, 1, 1]}]}',
        '{"size": ' + "9" * 400 + "}",
        "NaN",
        "\0",
    ],
    ids=lambda text: text[:20],
)
def test_manifests_that_no_reader_should_follow(tmp_path: Path, text: str) -> None:
    """D11: depth, 1e999 and 400 digits ended in tracebacks."""
    make_prepared(tmp_path)
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json") as caught:
        read_prepared(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_one_file_for_two_cases_is_refused(tmp_path: Path) -> None:
    """It would be trained on and judged by."""
    prepared = make_prepared(tmp_path)
    twice = replace(prepared.cases[-1], file="case0.npz", sha256=checksum(tmp_path / "case0.npz"))
    replace(prepared, cases=(*prepared.cases[:-1], twice)).write_manifest()
    with pytest.raises(ValueError, match="case0.npz is there more than once"):
        read_prepared(tmp_path)
