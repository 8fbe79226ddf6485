"""Preparing: arrays by arithmetic of the test's own, and every failure listed."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 - everyone's habit
from small_downloads import SIZE, case, labelled, nifti, volume, write

from ringfence.files import WriteFailed, checksum
from ringfence.weak.building import build
from ringfence.weak.building.build import PreparationFailed, prepare_source
from ringfence.weak.building.common_spacing import median_size
from ringfence.weak.building.unfinished import SOURCES
from ringfence.weak.datasets import find_folder, find_promise12
from ringfence.weak.prepared.prepared_set import MANIFEST, read_prepared

PROMISE12 = Path(os.environ.get("RINGFENCE_PROMISE12", Path(__file__).parents[4] / "shared" / "data" / "promise12"))


def test_the_arrays_are_those_of_the_volumes(download: Path, tmp_path: Path) -> None:
    done = prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    assert (done.failures, done.kept) == ((), 0)
    prepared = read_prepared(tmp_path / "dst")
    assert prepared == done.prepared
    assert [(one.name, one.split) for one in prepared.cases] == [
        ("Case01", "train"),
        ("Case02", "validation"),
        ("Case03", "train"),
    ]
    for number, one in enumerate(prepared.cases, start=1):
        assert (one.shape, one.spacing, one.masked) == ((3, 16, 16), (3.0, 0.5, 0.5), True)
        assert one.sha256 == checksum(tmp_path / "dst" / one.file)
        image, mask = prepared.load(one)
        assert mask is not None
        voxels = volume(number).astype(float)
        ordered = np.sort(voxels, axis=None)
        low, high = np.interp(np.array([0.005, 0.995]) * (ordered.size - 1), np.arange(ordered.size), ordered)
        expected = 255 * (voxels.clip(low, high) - low) / (high - low)
        assert np.abs(image[:, 0] - expected).max() <= 0.5001
        assert mask.sum() == 6 * 7
        assert mask[1, 4:10, 5:12].all()
    assert sorted(path.name for path in (tmp_path / "dst").iterdir()) == [
        "Case01.npz", "Case02.npz", "Case03.npz", MANIFEST, SOURCES
    ]  # fmt: skip


def test_other_sizes_are_resized_and_unknown_spacing_is_null(tmp_path: Path) -> None:
    voxels = np.zeros((2, 32, 32), np.uint8)
    voxels[:, :16] = 200
    write(tmp_path / "src/Case01.mhd", voxels, spacing=(1.0, 1.0, 1.0))
    write(tmp_path / "src/Case01_segmentation.mhd", (voxels > 0).astype(np.uint8))
    prepared = prepare_source(find_promise12(tmp_path / "src"), tmp_path / "dst", size=(8, 24)).prepared
    image, mask = prepared.load(prepared.cases[0])
    assert mask is not None
    assert image.shape == (2, 1, 8, 24)
    assert (prepared.cases[0].spacing, prepared.cases[0].shape) == (None, (2, 32, 32))
    assert (image[:, :, :3] == 255).all()
    assert (image[:, :, 5:] == 0).all()
    assert np.array_equal(mask, np.broadcast_to((np.arange(8) < 4)[:, None], mask.shape))


def test_zips_come_out_as_folders_do(download: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D12: and nothing is unpacked to a disk, where a kill would leave it. A size is chosen from zips, too."""
    for unpacking in ("mkdtemp", "mkstemp"):
        monkeypatch.setattr(tempfile, unpacking, None)
    (tmp_path / "zips").mkdir()
    for part, number in enumerate((1, 2, 3), start=1):
        with zipfile.ZipFile(tmp_path / f"zips/TrainingData_Part{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in download.glob(f"Case{number:02}*"):
                archive.write(file, f"TrainingData_Part{part}/{file.name}")
    loose = prepare_source(find_promise12(download), tmp_path / "loose", size=SIZE).prepared
    packed = prepare_source(find_promise12(tmp_path / "zips"), tmp_path / "packed", size=SIZE).prepared
    assert packed.cases == loose.cases
    assert prepare_source(find_promise12(tmp_path / "zips"), tmp_path / "packed", size=SIZE).kept == 3
    case(tmp_path / "large", 4, side=40)
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as archive:
        for file in (tmp_path / "large").iterdir():
            archive.write(file, file.name)
    assert median_size(find_promise12(tmp_path / "large.zip")) == (48, 48)


def damage(download: Path) -> list[str]:
    """One of each kind, and a piece of what should be said of each."""
    for number in range(4, 10):
        case(download, number)
    (download / "Case04.raw").write_bytes(b"short")
    header = download / "Case05.mhd"
    header.write_text(header.read_text().replace("DimSize = 16 16 3", "DimSize = 16 16 4"))
    write(download / "Case06_segmentation.mhd", np.full((3, 16, 16), 255, np.uint8))
    write(download / "Case07_segmentation.mhd", np.zeros((3, 16, 15), np.uint8))
    write(download / "Case08.mhd", np.full((3, 16, 16), np.nan, np.float32))
    (download / "Case09_segmentation.mhd").unlink()
    return [
        r"Case04: .*Case04.mhd: the header promises 16 × 16 × 3 voxels, 1536 bytes, and Case04.raw holds 5",
        r"Case05: .*Case05.mhd: the header promises 16 × 16 × 4",
        r"Case06: .*Case06_segmentation.mhd has unknown labels: 255; known are 0 background, 1 prostate",
        r"Case07: .*Case07.mhd has 3 × 16 × 16 voxels, but .*Case07_segmentation.mhd has 3 × 16 × 15",
        r"Case08: .*Case08.mhd: 768 of 768 voxels are NaN or infinite",
        r"Case09: there is no Case09_segmentation.mhd for",
    ]


def test_every_failure_is_listed_and_nothing_pretends_to_be_whole(download: Path, tmp_path: Path) -> None:
    expected = damage(download)
    told: list[str] = []
    with pytest.raises(PreparationFailed) as error:
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE, tell=told.append)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("6 failed and 3 are ready in")
    assert "--skip-failures" in lines[0]
    assert len(lines) == 7
    for pattern in expected:
        assert any(re.search(pattern, line) for line in lines[1:]), pattern
    assert len(told) == 8
    assert sorted(path.name for path in (tmp_path / "dst").glob("*.npz")) == [f"Case0{n}.npz" for n in (1, 2, 3)]
    with pytest.raises(FileNotFoundError, match="is not a prepared set"):
        read_prepared(tmp_path / "dst")
    for number in range(4, 10):  # repaired: only these are made
        case(download, number)
    assert prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE).kept == 3
    assert len(read_prepared(tmp_path / "dst").cases) == 9


def test_failures_can_be_left_out(download: Path, tmp_path: Path) -> None:
    damage(download)
    done = prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE, skip_failures=True)
    assert len(done.failures) == 6
    assert [one.name for one in read_prepared(tmp_path / "dst").cases] == ["Case01", "Case02", "Case03"]
    for number in (1, 2, 3):
        (download / f"Case{number:02}.raw").write_bytes(b"")
        (download / f"Case{number:02}.zraw").write_bytes(b"")
    with pytest.raises(PreparationFailed, match=r"9 failed and 0 are ready"):
        prepare_source(find_promise12(download), tmp_path / "none", size=SIZE, skip_failures=True)


def test_a_damaged_member_of_a_zip_is_a_failure_by_its_own_name(download: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        for file in sorted(download.iterdir()):
            archive.write(file, file.name)
    data = bytearray((tmp_path / "p.zip").read_bytes())
    start = data.index((download / "Case01.raw").read_bytes())
    data[start + 5] ^= 255
    (tmp_path / "p.zip").write_bytes(data)
    with pytest.raises(PreparationFailed, match=r"Case01: .*p.zip/Case01.raw cannot be read: Bad CRC-32"):
        prepare_source(find_promise12(tmp_path / "p.zip"), tmp_path / "dst", size=SIZE)
    with zipfile.ZipFile(tmp_path / "q.zip", "w") as archive:
        for file in sorted(download.iterdir()):
            archive.writestr(file.name, file.read_bytes()[:-40] if file.name == "Case02.raw" else file.read_bytes())
    with pytest.raises(PreparationFailed, match=r"Case02: .*q.zip/Case02.mhd: the header promises"):
        prepare_source(find_promise12(tmp_path / "q.zip"), tmp_path / "dst2", size=SIZE)


def test_what_is_no_file_or_too_large_costs_its_case_alone(
    download: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8, D13: pipes, folders and promises beyond any memory."""
    for number in (4, 5):
        case(download, number)
    for name in ("Case01.raw", "Case02_segmentation.mhd", "Case04.mhd"):
        (download / name).unlink()
    os.mkfifo(download / "Case01.raw")
    os.mkfifo(download / "Case02_segmentation.mhd")
    (download / "Case04.mhd").mkdir()
    header = download / "Case05.mhd"
    header.write_text(header.read_text().replace("DimSize = 16 16 3", "DimSize = 16 16 999999999"))
    with pytest.raises(PreparationFailed) as error:
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)
    first, *lines = str(error.value).splitlines()
    assert first.startswith("4 failed and 1 are ready")
    for line, message in zip(
        lines,
        ("01.raw is a pipe", "02_segmentation.mhd is a pipe", "04.mhd is a folder", "of memory, and"),
        strict=True,
    ):
        assert message in line

    def too_large(images: object) -> None:
        raise MemoryError

    monkeypatch.setattr(build, "read_channels", too_large)
    with pytest.raises(PreparationFailed, match=r"Case03: .*Case03.mhd needs more memory than there is"):
        prepare_source(find_promise12(download), tmp_path / "other", size=SIZE)


def test_a_disk_that_cannot_be_written_is_no_case_s_fault(
    download: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(images: object) -> None:
        raise WriteFailed(tmp_path / "dst", OSError(errno.EDQUOT, "quota"))

    monkeypatch.setattr(build, "read_channels", full)
    with pytest.raises(WriteFailed, match="your disk quota is used up"):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)


def test_a_mask_from_elsewhere_is_a_failure_with_both_names(download: Path, tmp_path: Path) -> None:
    write(download / "Case02_segmentation.mhd", np.zeros((3, 16, 16), np.uint8), spacing=(0.5, 0.5, 3.6))
    with pytest.raises(
        PreparationFailed, match=r"Case02.mhd has voxels of 3 × .*, but .*Case02_segmentation.mhd of 3.6"
    ):
        prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE)


@pytest.mark.filterwarnings("error")
def test_unusual_voxels(download: Path, tmp_path: Path) -> None:
    """Outliers beyond any percentile, an image of one value, one slice, no foreground."""
    values = np.linspace(0, 1, 768).reshape(3, 16, 16)
    wild = values.copy()
    wild[0, 0, :2] = 1e300, -1e300
    write(download / "Case01.mhd", wild)
    write(download / "Case02.mhd", np.full((3, 16, 16), 77, np.int16))
    write(download / "Case03.mhd", values[:1])
    write(download / "Case03_segmentation.mhd", np.zeros((1, 16, 16), np.uint8))
    prepared = prepare_source(find_promise12(download), tmp_path / "dst", size=SIZE).prepared
    wild_, flat, single = (prepared.load(one)[0] for one in prepared.cases)
    assert np.abs(wild_[1, 0] / 255 - values[1]).max() < 0.02
    assert not flat.any()
    assert single.shape == (1, 1, 16, 16)


def test_nnunet_with_two_channels_and_three_classes(tmp_path: Path) -> None:
    """Labels 1, 2 and 5 become 1, 2, 3; the size is the medians', up to a multiple of 16."""
    facts = {
        "channel_names": {"0": "T2", "1": "ADC"},
        "labels": {"background": 0, "a": 1, "b": 2, "c": 5},
        "numTraining": 3,
        "file_ending": ".nii.gz",
    }
    source = tmp_path / "Dataset001"
    for seed, name in enumerate("pqr"):
        for channel in (0, 1):
            nifti(source / f"imagesTr/{name}_{channel:04}.nii.gz", labelled(10 * seed + channel, tuple(range(256))))
        if name != "r":
            nifti(source / f"labelsTr/{name}.nii.gz", labelled(seed, (0, 1, 2, 5)))
    (source / "dataset.json").write_text(json.dumps(facts))
    prepared = prepare_source(find_folder(source), tmp_path / "dst").prepared
    assert prepared.size == (32, 32)
    assert (prepared.channels, prepared.classes) == (("T2", "ADC"), ("a", "b", "c"))
    assert read_prepared(tmp_path / "dst").labels == prepared.labels == (1, 2, 5)
    manifest = json.loads((tmp_path / "dst" / MANIFEST).read_text())
    for labels, expected in ((None, (1, 2, 3)), ([3, 7, 255], (3, 7, 255))):
        older = manifest | {"labels": labels}
        (tmp_path / "dst" / MANIFEST).write_text(json.dumps({k: v for k, v in older.items() if v is not None}))
        assert read_prepared(tmp_path / "dst").labels == expected
    for wrong in ([1, 2], [1, 2, 2], [0, 1, 2], [1, 2, 300], [1, 2, "c"], 5):
        (tmp_path / "dst" / MANIFEST).write_text(json.dumps(manifest | {"labels": wrong}))
        with pytest.raises(ValueError, match=r"manifest.json cannot be used"):
            read_prepared(tmp_path / "dst")
    assert [(one.name, one.split, one.masked) for one in prepared.cases] == [
        ("p", "train", True),
        ("q", "validation", True),
        ("r", "train", False),
    ]
    assert prepared.cases[0].spacing == pytest.approx((4.0, 0.75, 0.5))
    image, mask = prepared.load(prepared.cases[2])
    assert image.shape == (2, 2, 32, 32)
    assert mask is None
    same = prepare_source(find_folder(source), tmp_path / "same", size=(20, 30)).prepared
    image, mask = same.load(same.cases[1])
    assert np.array_equal(mask, np.searchsorted((0, 1, 2, 5), labelled(1, (0, 1, 2, 5))))
    for channel in (0, 1):
        expected = labelled(10 + channel, tuple(range(256))).astype(int)
        assert np.abs(image[:, channel] - expected).max() <= 3  # percentiles of all grey values
    nifti(source / "labelsTr/p.nii.gz", labelled(0, (0, 3, 4)))
    nifti(source / "imagesTr/q_0001.nii.gz", labelled(0, (0, 9), (2, 20, 29)))
    (source / "imagesTr/r_0000.nii.gz").write_bytes(b"nothing")
    with pytest.raises(PreparationFailed) as error:
        prepare_source(find_folder(source), tmp_path / "third")
    _, *lines = str(error.value).splitlines()
    assert "p.nii.gz has unknown labels: 3, 4; known are 0 background, 1 a, 2 b, 5 c" in lines[0]
    assert "q_0000.nii.gz has 2 × 20 × 30 voxels, but" in lines[1]
    assert "r_0000.nii.gz cannot be read" in lines[2]


def test_decathlon_with_channels_on_the_fourth_axis(tmp_path: Path) -> None:
    facts = {
        "name": "PROSTATE",
        "modality": {"0": "T2", "1": "ADC"},
        "labels": {"0": "background", "1": "PZ", "2": "TZ"},
        "training": [{"image": f"./imagesTr/p_{n}.nii.gz", "label": f"./labelsTr/p_{n}.nii.gz"} for n in (0, 1)],
    }
    voxels = labelled(0, tuple(range(256)), (2, 16, 16, 2))
    for number in (0, 1):
        nifti(tmp_path / f"src/imagesTr/p_{number}.nii.gz", voxels)
        nifti(tmp_path / f"src/labelsTr/p_{number}.nii.gz", labelled(number, (0, 1, 2), (2, 16, 16)))
    (tmp_path / "src/dataset.json").write_text(json.dumps(facts))
    prepared = prepare_source(find_folder(tmp_path / "src"), tmp_path / "dst").prepared
    image, mask = prepared.load(prepared.cases[1])
    assert np.abs(image - voxels.transpose(0, 3, 1, 2).astype(int)).max() <= 3
    assert np.array_equal(mask, labelled(1, (0, 1, 2), (2, 16, 16)))
    nifti(tmp_path / "src/imagesTr/p_0.nii.gz", voxels[..., :1])
    with pytest.raises(PreparationFailed, match=r"p_0.nii.gz has 1 channel; the data set has 2: T2, ADC"):
        prepare_source(find_folder(tmp_path / "src"), tmp_path / "dst")


@pytest.mark.skipif(
    not PROMISE12.is_dir(), reason=f"PROMISE12 is not at {PROMISE12} (RINGFENCE_PROMISE12 says where)"
)
def test_promise12_at_its_native_size(tmp_path: Path) -> None:
    """Three patients as a download has them: their masks keep the prostate's share of a slice."""
    source = find_promise12(PROMISE12 / "native")
    prepared = prepare_source(source, tmp_path / "dst", size=(64, 64)).prepared
    assert [(one.name, one.shape[1]) for one in prepared.cases] == [
        ("Case13", 320),
        ("Case25", 256),
        ("Case34", 384),
    ]
    for one in prepared.cases:
        image, mask = prepared.load(one)
        assert mask is not None
        native = sitk.GetArrayFromImage(sitk.ReadImage(str(PROMISE12 / "native" / f"{one.name}_segmentation.mhd")))
        assert mask.mean() == pytest.approx(native.mean(), rel=0.05)
        assert 5 < image.mean() < 200
        assert one.spacing is None
