"""D8: small files that promise, or hold, far more than may be read: refused in a line, within the limit of memory."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path

import nibabel
import numpy as np

from children import python

SIDE, LIMIT = 500, 30
MILLIONS = SIDE**3 // 10**6
READ = """
import resource, sys
from pathlib import Path
import nibabel
from ringfence.weak.volumes import Place, read_volume
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    path = Path(name)
    try:
        read_volume(Place(Path("a.mhd"), path) if path.suffix == ".zip" else path)
    except ValueError as error:
        print(error)
assert "SimpleITK" not in sys.modules
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def zeros(count: int) -> bytes:
    """So many millions of them, compressed by zlib, without having them."""
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(10**6)) for _ in range(count)), packer.flush()])


def header(size: int, packed: int, data: str, method: bool = True) -> str:
    return (
        f"ObjectType = Image\nNDims = 3\nCompressedData = {method}\nCompressedDataSize = {packed}\n"
        f"DimSize = {size} {size} {size}\nElementType = MET_UCHAR\nElementDataFile = {data}\n"
    )


def bomb(folder: Path, kind: str, size: int) -> Path:
    if kind == "zip":
        with zipfile.ZipFile(folder / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.mhd", header(size, 1, "a.raw", False))
            with archive.open("a.raw", "w") as member:
                for _ in range(MILLIONS):
                    member.write(bytes(10**6))
        return folder / "b.zip"
    if kind == "mhd":
        packed = zeros(MILLIONS)
        (folder / "a.zraw").write_bytes(packed)
        (folder / "a.mhd").write_text(header(size, len(packed), "a.zraw"))
        return folder / "a.mhd"
    image = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.uint8), np.eye(4))
    image.header["dim"][1:4] = size
    image.header["vox_offset"] = 352
    with gzip.open(folder / "a.nii.gz", "wb") as file:
        file.write(image.header.binaryblock + bytes(4))
        for _ in range(MILLIONS):
            file.write(bytes(10**6))
    return folder / "a.nii.gz"


def test_memory_stays_within_the_limit(tmp_path: Path) -> None:
    """125 MB of zeros in 0.1 MB, with a header that says so or that speaks of 1 MB."""
    paths = []
    for size in (SIDE, 100):
        for kind in ("mhd", "nii.gz", "zip"):
            folder = tmp_path / f"{size}{kind}"
            folder.mkdir()
            paths.append(bomb(folder, kind, size))
            assert sum(file.stat().st_size for file in folder.iterdir()) < 10**6
    done = python("-c", READ, *paths, RINGFENCE_MEMORY=f"{LIMIT}MB")
    assert done.returncode == 0, done.stderr
    *messages, kilobytes = done.stdout.splitlines()
    for message, path in zip(messages, paths, strict=True):
        large = path.parent.name.startswith(str(SIDE))
        assert str(path) in message
        wanted = (
            "would take 375 MB of memory, and the limit is 30 MB" if large else "promises 100 × 100 × 100 voxels"
        )
        assert wanted in message
    assert int(kilobytes) < LIMIT * 1000
    assert done.stderr == ""
