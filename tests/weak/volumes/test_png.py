"""PNG, against files written byte by byte, and against Pillow."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from children import python
from faults import oracles
from faults.mutations.png import joined, made
from ringfence.weak.volumes import (
    Place,
    Volume,
    channel_count,
    check_same_grid,
    header_sizes,
    read_channels,
    read_shape,
    read_spacing,
    read_volume,
    upright,
    write_volume,
)

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (5, 7, 3), np.uint8)
LARGE = (b"IHDR", b"\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0")


def saved(path: Path, pixels: NDArray[np.generic], **options: object) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def planes(volumes: list[Volume]) -> NDArray[np.generic]:
    return np.stack([volume.voxels[0] for volume in volumes], axis=-1)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_grey(tmp_path: Path, kind: type[np.generic]) -> None:
    pixels = RNG.integers(0, np.iinfo(kind).max, (5, 7), kind, endpoint=True)
    path = saved(tmp_path / "a.PNG", pixels)
    volume = read_volume(path)
    assert (volume.voxels.shape, volume.voxels.dtype, volume.path) == ((1, 5, 7), np.dtype(kind), path)
    assert np.array_equal(volume.voxels[0], pixels)
    assert (volume.spacing_known, volume.placed, upright(volume)) == (False, False, ())
    assert (header_sizes(path), read_shape(path), channel_count(path)) == ((7, 5, 1), (1, 5, 7), 1)
    assert read_spacing(path) is None
    assert len(read_channels([path])) == 1


def test_colours_are_channels_and_transparency_is_ignored(tmp_path: Path) -> None:
    opacity = RNG.integers(0, 256, (5, 7, 1), np.uint8)
    for name, pixels, channels in (
        ("rgb", COLOURS, 3),
        ("rgba", np.concatenate([COLOURS, opacity], -1), 3),
        ("grey", np.concatenate([COLOURS[..., :1], opacity], -1), 1),
    ):
        path = saved(tmp_path / f"{name}.png", pixels)
        volumes = read_channels([path])
        assert np.array_equal(planes(volumes), pixels[..., :channels])
        assert all(volume.voxels.shape == (1, 5, 7) for volume in volumes)
        assert channel_count(path) == channels
    with pytest.raises(ValueError, match=r"rgb.png is in colour, and grey is needed here"):
        read_volume(tmp_path / "rgb.png")
    with pytest.raises(ValueError, match=r"rgb.png is in colour"):
        read_channels([tmp_path / "grey.png", tmp_path / "rgb.png"])


def test_a_palette_is_colours_of_an_image_and_labels_of_a_mask(tmp_path: Path) -> None:
    numbers = RNG.integers(0, 4, (5, 7), np.uint8)
    image = Image.fromarray(numbers)
    image.putpalette(COLOURS[0, :4].tobytes())
    image.save(tmp_path / "a.png", transparency=2)
    assert (tmp_path / "a.png").read_bytes()[24:26] == b"\x02\x03"  # packed by fours
    assert np.array_equal(planes(read_channels([tmp_path / "a.png"])), COLOURS[0][numbers])
    assert np.array_equal(read_volume(tmp_path / "a.png").voxels[0], numbers)
    assert channel_count(tmp_path / "a.png") == 3
    for palette in (bytes(3 * 3), b"", bytes(4), bytes(3 * 257)):
        (tmp_path / "b.png").write_bytes(made(bytes([0, 3]), (1, 1), 8, 3, palette=palette))
        with pytest.raises(ValueError, match=r"b.png cannot be read: its palette has"):
            read_channels([tmp_path / "b.png"])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_bits_are_the_numbers_that_are_stored(tmp_path: Path, depth: int) -> None:
    """A mask's labels, as of 8 bits: not stretched to white."""
    pixels = RNG.integers(0, 2**depth, (5, 7), np.uint8)
    bits = (pixels[..., None] >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.reshape(5, -1), axis=1)
    (tmp_path / "a.png").write_bytes(made(b"".join(b"\0" + row.tobytes() for row in rows), (7, 5), depth, 0))
    assert np.array_equal(read_volume(tmp_path / "a.png").voxels[0], pixels)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 20), st.integers(1, 20), st.sampled_from([(0, 8), (0, 16), (0, 2), (2, 8), (6, 8)]), st.randoms()
)
def test_every_filter_in_every_order(tmp_path_factory, width, height, kind_depth, random) -> None:  # type: ignore[no-untyped-def]
    kind, depth = kind_depth
    path = tmp_path_factory.getbasetemp() / "filtered.png"
    row = -(-width * depth * {0: 1, 2: 3, 6: 4}[kind] // 8)
    rows = (bytes([random.randrange(5)]) + random.randbytes(row) for _ in range(height))
    path.write_bytes(made(b"".join(rows), (width, height), depth, kind))
    stored, _ = oracles.png(path)
    assert np.array_equal(planes(read_channels([path])), stored[..., :3])


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (8, 8), (13, 11)])
def test_interlaced(tmp_path: Path, size: tuple[int, int]) -> None:
    width, height = size
    pixels = RNG.integers(0, 256, (height, width), np.uint8)
    rows = [
        b"\0" + pixels[row, x::dx].tobytes()
        for x, y, dx, dy in oracles.PNG_PASSES
        for row in range(y, height, dy)
        if x < width
    ]
    (tmp_path / "a.png").write_bytes(made(b"".join(rows), size, 8, 0, interlaced=True))
    assert np.array_equal(read_volume(tmp_path / "a.png").voxels[0], pixels)


def test_sizes_are_read_without_pixels(tmp_path: Path) -> None:
    """Of a file that ends after its header, and of one that asks for more than there is."""
    path = saved(tmp_path / "a.png", COLOURS)
    path.write_bytes(path.read_bytes()[:33])
    assert header_sizes(path) == (7, 5, 1, 3)
    with pytest.raises(
        ValueError, match="a.png cannot be read: it ends before its last chunk: the file is cut off"
    ):
        read_channels([path])
    path.write_bytes(joined([LARGE, (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]))
    for read in (header_sizes, read_volume):
        with pytest.raises(ValueError, match=r"^[^\n]*a.png would take [\d,]+ GB of memory, and the limit is"):
            read(path)


def test_a_bomb_stays_within_the_limit(tmp_path: Path) -> None:
    """60 MB of zeros in 60 kB, behind a header of 100 pixels; and a text of as much, which is never unpacked."""
    zeros, header = zlib.compress(bytes(60_000_000), 9), b"\0\0\0\x0a\0\0\0\x0a\x08\0\0\0\0"
    paths = [tmp_path / "pixels.png", tmp_path / "text.png"]
    end = (b"IEND", b"")
    paths[0].write_bytes(joined([(b"IHDR", header), (b"IDAT", zeros), end]))
    small = (b"IDAT", zlib.compress(bytes(110)))
    paths[1].write_bytes(
        joined([(b"IHDR", header), (b"zTXt", b"x\0\0" + zeros), (b"iCCP", b"x\0\0" + zeros), small, end])
    )
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom ringfence.weak.volumes import read_volume\n"
        "import PIL.PngImagePlugin\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert not read_volume(Path(sys.argv[2])).voxels.any()\n"
        "try:\n    read_volume(Path(sys.argv[1]))\nexcept ValueError as error:\n    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = python("-W", "error", "-c", script, *paths, RINGFENCE_MEMORY="10MB")
    assert done.returncode == 0, done.stderr
    message, kilobytes = done.stdout.splitlines()
    assert (
        f"{paths[0]} cannot be read: the header promises 10 × 10 pixels, 110 bytes, and there are more" in message
    )
    assert int(kilobytes) < 20_000


DAMAGE = {
    "it is not PNG: it does not begin as one": b"GIF89a and so on",
    "it is a JPEG by another name: convert it to PNG": b"\xff\xd8\xff\xe0JFIF and so on",
    "it is empty": b"",
    "its first chunk is 'CgBI', and should be IHDR": joined([(b"CgBI", b"1234"), (b"IEND", b"")]),
    "16 bits of each colour": made(bytes(13), (1, 1), 16, 2),
    "0 × 5 pixels": made(b"", (0, 5), 8, 0),
    "its header is none that PNG knows: 3 0 0 0 0": made(b"", (1, 1), 3, 0),
    "it has a chunk 'ABCD' that PNG does not know": joined(
        [(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"), (b"ABCD", b"")]
    ),
    "1 × 2 pixels, 4 bytes, and there are 2": made(b"\0\0", (1, 2), 8, 0),
    "1 × 1 pixels, 2 bytes, and there are more": made(b"\0\0\0", (1, 1), 8, 0),
    "its pixels are damaged": made(b"\x07\0", (1, 1), 8, 0),
    "its compressed bytes are damaged": joined(
        [(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"), (b"IDAT", b"abc"), (b"IEND", b"")]
    ),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_damage_is_named(tmp_path: Path, message: str) -> None:
    (tmp_path / "a.png").write_bytes(DAMAGE[message])
    with pytest.raises(ValueError, match=message) as caught:
        read_channels([tmp_path / "a.png"])
    assert str(caught.value).startswith(f"{tmp_path / 'a.png'} cannot be read: ")
    assert "\n" not in str(caught.value)


def test_cut_off_anywhere_or_with_other_bits(tmp_path: Path) -> None:
    """Refused in a line with the file's name, and never otherwise."""
    path = saved(tmp_path / "a.png", COLOURS, compress_level=1)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    damaged = [whole[:length] for length in range(len(whole))]
    for _ in range(400):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:  # every byte is in some checksum
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.png cannot be read: "):
            read_channels([path])


def test_the_still_picture_of_an_animation_and_what_others_append(tmp_path: Path) -> None:
    first, second = (Image.fromarray(np.full((4, 4), value, np.uint8)) for value in (9, 200))
    first.save(tmp_path / "a.png", save_all=True, append_images=[second])
    assert b"fdAT" in (tmp_path / "a.png").read_bytes()
    assert (read_volume(tmp_path / "a.png").voxels == 9).all()
    path = saved(tmp_path / "b.png", COLOURS[..., 0])
    path.write_bytes(path.read_bytes() + b"and more")
    assert np.array_equal(read_volume(path).voxels[0], COLOURS[..., 0])


def test_a_member_of_a_zip(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "PNG")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/a.png", file.getvalue())
    place = Place(Path("in/a.png"), tmp_path / "a.zip")
    assert header_sizes(place) == (7, 5, 1, 3)
    assert np.array_equal(planes(read_channels([place])), COLOURS)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_masks_are_written_as_others_read_them(tmp_path: Path, kind: type[np.generic]) -> None:
    like = read_volume(saved(tmp_path / "a.png", COLOURS[..., 0]))
    labels = RNG.integers(0, 200, (1, 5, 7), kind)
    write_volume(tmp_path / "mask.png", labels, like)
    with Image.open(tmp_path / "mask.png") as image:
        image.verify()
    with Image.open(tmp_path / "mask.png") as image:
        assert np.array_equal(np.asarray(image), labels[0])
    again = read_volume(tmp_path / "mask.png")
    assert np.array_equal(again.voxels, labels)
    assert again.voxels.dtype == np.dtype(kind)
    check_same_grid(again, like)
    assert [file.name for file in tmp_path.iterdir() if ".part" in file.name] == []


def test_what_a_png_cannot_hold(tmp_path: Path) -> None:
    like = read_volume(saved(tmp_path / "a.png", COLOURS[..., 0]))
    shares = RNG.random((1, 5, 7), np.float32)
    with pytest.raises(ValueError, match="b.png: a PNG holds no voxels of the kind float32"):
        write_volume(tmp_path / "b.png", shares, like)
    with pytest.raises(ValueError, match="b.mha: what belongs to a.png is written in the same format"):
        write_volume(tmp_path / "b.mha", shares, like)
    write_volume(tmp_path / "b.nii.gz", shares, like)
    again = read_volume(tmp_path / "b.nii.gz")
    assert np.array_equal(again.voxels, shares)
    assert (again.spacing_known, again.placed, upright(again)) == (False, False, ())
    check_same_grid(again, like)
