"""Mutations are made again from their number, do damage, and never fail themselves; oracles agree with the libraries."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import SimpleITK as sitk  # noqa: N813
import yaml

from faults import oracles
from faults.mutations.archives import mutate_zip, packed
from faults.mutations.metaimage import MetaImage, mutate_metaimage
from faults.mutations.nifti import mutate_nifti
from faults.mutations.raw import mutate_bytes
from faults.mutations.trees import mutate_rows, mutate_tree, to_json, to_yaml

TREE = {"a": [1, 2.5, "x"], "b": {"c": None, "d": True}, "e": [[1], {"f": "g"}]}
MEMBERS = {"a.txt": b"hello" * 50, "b/c.bin": bytes(range(256))}


def made(tmp_path: Path) -> dict[str, Callable[[random.Random], bytes]]:
    """A mutation of each kind, by a seed."""
    image = sitk.GetImageFromArray(np.arange(120, dtype=np.int16).reshape(4, 5, 6))
    sitk.WriteImage(image, str(tmp_path / "x.mha"), True)
    parsed = MetaImage.parsed((tmp_path / "x.mha").read_bytes())
    nifti = nibabel.Nifti1Image(np.arange(120, dtype=np.int16).reshape(6, 5, 4), np.eye(4)).to_bytes()
    return {
        "bytes": lambda rng: mutate_bytes(rng, nifti, [nifti[::-1]]),
        "json": lambda rng: to_json(rng, mutate_tree(rng, TREE)),
        "yaml": lambda rng: to_yaml(rng, mutate_tree(rng, TREE)),
        "rows": lambda rng: mutate_rows(rng, ["a", "b"], [[1, 2], [3, "x"]]),
        "metaimage": lambda rng: (lambda one: one.text() + one.data)(mutate_metaimage(rng, parsed)),
        "nifti": lambda rng: mutate_nifti(rng, nifti, [nifti]),
        "zip": lambda rng: mutate_zip(rng, MEMBERS),
    }


def test_mutations_are_seeded_do_not_fail_and_differ(tmp_path: Path) -> None:
    for kind, mutate in made(tmp_path).items():
        inputs = [mutate(random.Random(seed)) for seed in range(300)]
        assert inputs == [mutate(random.Random(seed)) for seed in range(300)], kind
        assert len(set(inputs)) > 200, kind


def test_text_keeps_a_tree_that_is_not_mutated_and_raw_values_reach_it() -> None:
    for write, parse in ((to_json, json.loads), (to_yaml, yaml.safe_load)):
        assert sum(_keeps(write(random.Random(seed), TREE), parse) for seed in range(40)) > 25
    hostile = b"".join(to_json(random.Random(seed), mutate_tree(random.Random(seed), TREE)) for seed in range(3000))
    for raw in (b"1e999", b"9" * 400, b"[" * 66, b"NaN"):
        assert raw in hostile


def _keeps(text: bytes, parse: Callable[[bytes], Any]) -> bool:
    try:
        return parse(text) == TREE
    except (ValueError, yaml.YAMLError):
        return False


def test_a_packed_zip_is_valid() -> None:
    with zipfile.ZipFile(BytesIO(packed(MEMBERS))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS


def test_oracles_read_what_the_libraries_wrote(tmp_path: Path) -> None:
    for kind in ("uint8", "int16", "uint16", "int32", "float32", "float64"):
        voxels = np.random.default_rng(0).integers(0, 99, (4, 5, 6)).astype(kind)
        image = sitk.GetImageFromArray(voxels)
        image.SetSpacing((0.5, 0.75, 3.0))
        for name, packed_ in (("a.mha", False), ("b.mha", True), ("c.mhd", False), ("d.mhd", True)):
            sitk.WriteImage(image, str(tmp_path / name), packed_)
            read = oracles.metaimage(tmp_path / name)
            assert np.array_equal(read.voxels, voxels)
            assert read.voxels.dtype == voxels.dtype
            assert read.spacing == (3.0, 0.75, 0.5)
        for made_ in (nibabel.Nifti1Image, nibabel.Nifti2Image):
            for name in ("x.nii", "x.nii.gz"):
                nibabel.save(made_(voxels.transpose(), np.diag([0.5, 0.75, 3.0, 1.0])), tmp_path / name)
                read = oracles.nifti(tmp_path / name)
                assert np.array_equal(read.voxels, voxels)
                assert read.spacing == (3.0, 0.75, 0.5)
