"""How a prepared case is best stored: disk space, and the time of a random slice, a random patch and a whole case.

    python benchmarks/prepared_format.py --data ../shared/data/promise12/native --out results/speed/format

Each format holds the same prepared cases (image and mask). Files are in the system's cache, as they are from the
second epoch on where the memory allows: what is compared is what a loader's processor does. Rounds are interleaved;
times are medians over the rounds, as ratios to the format that ringfence writes. blosc2 is compared where it is
installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringfence import weak
from ringfence.environment import commit, environment
from ringfence.weak.prepared.case_file import find_arrays, write_case

Bytes = NDArray[np.uint8]
Start = tuple[int, int, int]
OURS: Final = "npz, not packed (ringfence)"


class Format:
    """Writes a case, and reads a window of its image."""

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """Write the case; what :meth:`window` needs to know of it, kept as a training would keep it."""
        raise NotImplementedError

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """``image[z, :, y, x]`` of a window."""
        raise NotImplementedError


class Plain(Format):
    """What ringfence writes, and how it reads it: by position."""

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """See Format."""
        done = write_case(path.parent, path.name, image, mask)
        return find_arrays(path.parent / done.file, {"image": image.shape, "mask": mask.shape})

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """See Format."""
        found: Bytes = np.empty((size[0], known.shapes["image"][1], *size[1:]), np.uint8)
        with known.open() as file:
            known.fill(file, "image", start, found)
        return found


class Packed(Format):
    """What ringfence wrote before: the whole case is unpacked."""

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """See Format."""
        np.savez_compressed(path, image=image, mask=mask)
        return path.with_name(f"{path.name}.npz")

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """See Format."""
        with np.load(known) as stored:
            return _cut(stored["image"], start, size)


class Mapped(Format):
    """A .npy for each array, mapped into memory."""

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """See Format."""
        np.save(path.with_name(f"{path.name}.image.npy"), image)
        np.save(path.with_name(f"{path.name}.mask.npy"), mask)
        return path.with_name(f"{path.name}.image.npy")

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """See Format."""
        return _cut(np.load(known, mmap_mode="r"), start, size)


class SliceWise(Format):
    """zlib, level 1, each slice for itself."""

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """See Format."""
        parts = [zlib.compress(one.tobytes(), 1) for array in (image, mask) for one in array]
        path.write_bytes(b"".join(parts))
        return path, np.cumsum([0, *map(len, parts)]).tolist(), image.shape

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """See Format."""
        path, places, shape = known
        slices = range(start[0], min(start[0] + size[0], shape[0]))
        with path.open("rb") as file:
            file.seek(places[slices[0]])
            content = file.read(places[slices[-1] + 1] - places[slices[0]])
        first = places[slices[0]]
        parts = [zlib.decompress(content[places[one] - first : places[one + 1] - first]) for one in slices]
        whole = np.frombuffer(b"".join(parts), np.uint8).reshape(len(slices), *shape[1:])
        return _cut(whole, (0, *start[1:]), size)


class Blosc(Format):
    """blosc2, chunks of one slice; as nnU-Net v2 uses it, but for the chunks."""

    def __init__(self, blosc2: Any, codec: str, level: int) -> None:
        self.blosc2, self.options = blosc2, {"codec": blosc2.Codec[codec], "clevel": level, "nthreads": 1}

    def write(self, path: Path, image: Bytes, mask: Bytes) -> Any:
        """See Format."""
        for name, array in (("image", image), ("mask", mask)):
            file = str(path.with_name(f"{path.name}.{name}.b2nd"))
            self.blosc2.asarray(array, urlpath=file, mode="w", chunks=(1, *array.shape[1:]), cparams=self.options)
        return str(path.with_name(f"{path.name}.image.b2nd"))

    def window(self, known: Any, start: Start, size: Start) -> Bytes:
        """See Format."""
        return _cut(self.blosc2.open(known, mode="r", dparams={"nthreads": 1}), start, size)


def _cut(array: Any, start: Start, size: Start) -> Bytes:
    z, y, x = (slice(first, first + length) for first, length in zip(start, size, strict=True))
    return np.ascontiguousarray(array[z, :, y, x])


def main() -> None:
    """Measure, and write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="PROMISE12 as downloaded")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--patch", type=int, nargs=3, default=[16, 96, 96])
    parser.add_argument("--reads", type=int, default=100, help="of each kind, in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepared = weak.prepare(
            "promise12", options.data, f"{folder}/set", size=(options.size, options.size)
        ).prepared
        cases = [(image, mask) for image, mask in map(prepared.load, prepared.cases) if mask is not None]
        rows = measured(cases, Path(folder), options)
    record = {
        "command": f"python benchmarks/prepared_format.py --data PROMISE12 --size {options.size} "
        f"--patch {' '.join(map(str, options.patch))} --reads {options.reads} --rounds {options.rounds} "
        f"--seed {options.seed}",
        "seed": options.seed,
        "environment": environment() | {"commit": commit()},
        "cases": len(cases),
        "slices": sum(len(image) for image, _ in cases),
        "size": options.size,
        "patch": options.patch,
        "formats": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def formats() -> dict[str, Format]:
    """Those that there are, ours first."""
    found: dict[str, Format] = {
        OURS: Plain(),
        "npz, packed (before)": Packed(),
        "npy, mapped": Mapped(),
        "zlib 1, slice by slice": SliceWise(),
    }
    try:
        blosc2 = importlib.import_module("blosc2")
    except ModuleNotFoundError:
        return found
    version = f"blosc2 {blosc2.__version__}"
    return found | {
        f"{version}, LZ4 5": Blosc(blosc2, "LZ4", 5),
        f"{version}, Zstandard 5": Blosc(blosc2, "ZSTD", 5),
    }


def measured(cases: list[tuple[Bytes, Bytes]], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """For each format: bytes on the disk over those of the voxels, and times over ours."""
    random = np.random.default_rng(options.seed)
    raw = sum(image.nbytes + mask.nbytes for image, mask in cases)
    known, sizes = {}, {}
    for number, (name, one) in enumerate(formats().items()):
        place = folder / str(number)
        place.mkdir()
        known[name] = [one.write(place / f"case{index}", *case) for index, case in enumerate(cases)]
        sizes[name] = sum(file.stat().st_size for file in place.iterdir()) / raw
    side = options.size
    kinds: dict[str, Callable[[int], tuple[Start, Start]]] = {
        "slice": lambda depth: ((int(random.integers(depth)), 0, 0), (1, side, side)),
        "patch": lambda depth: _patch(random, (depth, side, side), options.patch),
        "case": lambda depth: ((0, 0, 0), (depth, side, side)),
    }
    ratios: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in kinds} for name in known}
    for kind, place_of in kinds.items():
        for _ in range(options.rounds):
            wanted = [int(random.integers(len(cases))) for _ in range(options.reads)]
            places = [(case, *place_of(len(cases[case][0]))) for case in wanted]
            times = {name: _seconds(one, known[name], places, cases) for name, one in formats().items()}
            for name, seconds in times.items():
                ratios[name][kind].append(seconds / times[OURS])
    return {
        name: {"disk": sizes[name]} | {kind: statistics.median(found) for kind, found in one.items()}
        for name, one in ratios.items()
    }


def _patch(random: np.random.Generator, space: Start, size: list[int]) -> tuple[Start, Start]:
    least = [min(one, length) for one, length in zip(size, space, strict=True)]
    start = [int(random.integers(length - one + 1)) for one, length in zip(least, space, strict=True)]
    return (start[0], start[1], start[2]), (least[0], least[1], least[2])


def _seconds(
    one: Format, known: list[Any], places: list[tuple[int, Start, Start]], cases: list[tuple[Bytes, Bytes]]
) -> float:
    """The time of these reads, after one that is not counted; the first and the last are checked."""
    for case, start, size in (places[0], places[-1]):
        assert np.array_equal(one.window(known[case], start, size), _cut(cases[case][0], start, size))
    began = time.perf_counter()
    for case, start, size in places:
        one.window(known[case], start, size)
    return time.perf_counter() - began


def as_markdown(record: dict[str, Any]) -> str:
    """The ratios as a table."""
    facts, side = record["environment"], record["size"]
    patch = " × ".join(map(str, record["patch"]))
    lines = [
        f"PROMISE12, {record['cases']} cases, {record['slices']} slices of {side} × {side}, image and mask. Disk: "
        "bytes over those of the voxels. Times: over those of the first row; one processor, files in the system's "
        "cache.",
        "",
        f"| format | disk | a random slice | a random patch of {patch} | a whole case |",
        "|---|---|---|---|---|",
    ]
    for name, row in record["formats"].items():
        lines.append(
            f"| {name} | {row['disk']:.2f} | {row['slice']:.2f} | {row['patch']:.2f} | {row['case']:.2f} |"
        )
    lines += ["", f"`{record['command']}`, {facts['cpu']}, commit {facts['commit']}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
