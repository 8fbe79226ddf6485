"""PROMISE12 as downloaded: ``CaseNN.mhd`` and ``CaseNN_segmentation.mhd``, in folders or in the challenge's zips.

Litjens et al. 2014, doi 10.1016/j.media.2013.12.002.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from typing import Final

from ringfence.weak.datasets.layout import Layout
from ringfence.weak.datasets.source import Source, SourceCase, SourceVolume, with_validation
from ringfence.weak.volumes.places import members, opened_zip

SIZE: Final = (256, 256)
VALIDATION: Final = frozenset(f"Case{number:02}" for number in (2, 16, 19, 24, 25, 26, 30, 31, 32, 48))
"""The authors' split."""
_NAME: Final = re.compile(r"Case(\d+)(_segmentation)?\.mh[da]", re.IGNORECASE)


def find_promise12(path: Path, validation: Sequence[str] | None = None) -> Source:
    """The challenge's training cases in a zip, or in a folder with them or with zips, however deep.

    A folder that holds cases itself is not searched any deeper.

    Args:
        path: the zip or the folder.
        validation: the cases for validation, ``02`` or ``Case02``; default: the split of the paper's authors.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; it should be the challenge's zip, or a folder with its files"
        )
    every_image: dict[str, list[SourceVolume]] = {}
    every_mask: dict[str, list[SourceVolume]] = {}
    for volume in _volumes(path):
        if match := _NAME.fullmatch(volume.path.name):
            found = every_mask if match[2] else every_image
            found.setdefault(f"Case{match[1]}", []).append(volume)
    images = {name: _only(name, found, every_mask.get(name, [])) for name, found in every_image.items()}
    masks = {name: _only(name, found, every_image.get(name, [])) for name, found in every_mask.items()}
    if not images and not masks:
        raise FileNotFoundError(
            f"{path}: no CaseNN.mhd and CaseNN_segmentation.mhd in it, nor in a folder or zip inside it"
        )
    whole = sorted(images.keys() & masks.keys())
    problems = {name: f"there is no {name}_segmentation.mhd for {images[name]}" for name in images.keys() - masks}
    problems |= {name: f"there is no {name}.mhd for {masks[name]}" for name in masks.keys() - images}
    source = Source(
        kind="promise12",
        name="PROMISE12",
        channels=("T2",),
        classes=("prostate",),
        labels=(1,),
        cases=tuple(SourceCase(name, (images[name],), masks[name]) for name in whole),
        validation=VALIDATION.intersection(whole),
        split="the authors' ten patients",
        problems=dict(sorted(problems.items())),
    )
    return with_validation(source, validation and [f"Case{n}" if n.isdecimal() else n for n in validation])


def _only(name: str, found: list[SourceVolume], partners: list[SourceVolume]) -> SourceVolume:
    """The one there is or, of several, the one beside a partner: test cases have the names of training cases."""
    beside = {(partner.archive, partner.path.parent) for partner in partners}
    whole = [volume for volume in found if (volume.archive, volume.path.parent) in beside]
    if len(found) == 1 or len(whole) == 1:
        return found[0] if len(found) == 1 else whole[0]
    raise ValueError(
        f"{name} is there {'twice' if len(found) == 2 else f'{len(found)} times'}: "
        f"{' and '.join(map(str, found))}. Name the folder or the zip that holds the training cases, each once"
    )


def _volumes(path: Path) -> Iterable[SourceVolume]:
    """Whatever there is, by its name: what is no file costs the case that it is named as."""
    if not path.is_dir():
        return _packed(path)
    here = [SourceVolume(file) for file in sorted(path.iterdir())]
    if any(_NAME.fullmatch(volume.path.name) for volume in here):
        return here
    files = sorted(file for file in path.rglob("*") if not file.is_dir())
    archives = [file for file in files if file.suffix.lower() == ".zip" and not file.name.startswith(".")]
    return [*map(SourceVolume, files), *(volume for archive in archives for volume in _packed(archive))]


def _packed(archive: Path) -> list[SourceVolume]:
    with opened_zip(archive) as opened:
        found = members(opened)
    for one in found:
        outside = ".." in PureWindowsPath(one.filename).parts or PureWindowsPath(one.filename).anchor
        if outside or "\0" in one.orig_filename:  # a Windows path knows both kinds of slash
            raise ValueError(
                f"{archive} holds a file named {one.orig_filename!r}, outside its own folder: it is not used"
            )
    return [SourceVolume(Path(one.filename), archive) for one in found]


PROMISE12: Final = Layout(
    name="promise12",
    description="the prostate MR challenge: CaseNN.mhd and CaseNN_segmentation.mhd, in zips or folders",
    find=find_promise12,
    help=f"""Prepare PROMISE12: MetaImage with .raw or .zraw, of any in-plane size. The validation patients are
those of the paper's authors: {" ".join(sorted(name.removeprefix("Case") for name in VALIDATION))}. Cases without a
mask, as in the challenge's test set, fail.""",
    source="a zip of the challenge, or a folder with its zips or files",
    size=SIZE,
    spacing="none",  # as the paper's authors did
)
