"""PROMISE12 as downloaded: ``CaseNN.mhd`` and ``CaseNN_segmentation.mhd``, in folders or in the challenge's zips.

Litjens et al. 2014, doi 10.1016/j.media.2013.12.002.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import Final

from ringfence.weak.sources.source import Source, SourceCase, SourceVolume

SIZE: Final = (256, 256)
VALIDATION: Final = frozenset(f"Case{number:02}" for number in (2, 16, 19, 24, 25, 26, 30, 31, 32, 48))
"""The authors' split."""
_NAME: Final = re.compile(r"Case(\d+)(_segmentation)?\.mh[da]", re.IGNORECASE)


def find_promise12(path: Path) -> Source:
    """The challenge's training cases in a zip, or in a folder with them or with zips, however deep.

    A folder that holds cases itself is not searched any deeper.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; it should be the challenge's zip, or a folder with its files"
        )
    images: dict[str, SourceVolume] = {}
    masks: dict[str, SourceVolume] = {}
    for volume in _volumes(path):
        match = _NAME.fullmatch(volume.path.name)
        if not match:
            continue
        found, name = masks if match[2] else images, f"Case{match[1]}"
        if name in found:
            raise ValueError(
                f"{name} is there twice: {found[name]} and {volume}. Name the folder or the zip that holds the "
                "training cases, each once"
            )
        found[name] = volume
    if not images and not masks:
        raise FileNotFoundError(
            f"{path}: no CaseNN.mhd and CaseNN_segmentation.mhd in it, nor in a folder or zip inside it"
        )
    whole = sorted(images.keys() & masks.keys())
    problems = {name: f"there is no {name}_segmentation.mhd for {images[name]}" for name in images.keys() - masks}
    problems |= {name: f"there is no {name}.mhd for {masks[name]}" for name in masks.keys() - images}
    return Source(
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


def _volumes(path: Path) -> Iterable[SourceVolume]:
    if path.is_file():
        return _packed(path)
    here = [SourceVolume(file) for file in sorted(path.iterdir()) if file.is_file()]
    if any(_NAME.fullmatch(volume.path.name) for volume in here):
        return here
    files = sorted(file for file in path.rglob("*") if file.is_file())
    archives = [file for file in files if file.suffix.lower() == ".zip" and not file.name.startswith(".")]
    return [*map(SourceVolume, files), *(volume for archive in archives for volume in _packed(archive))]


def _packed(archive: Path) -> list[SourceVolume]:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [one.filename for one in opened.infolist() if not one.is_dir()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is no zip, or a damaged one ({error}): download it again") from None
    for name in names:
        if ".." in PureWindowsPath(name).parts or PureWindowsPath(name).anchor:  # it knows both kinds of slash
            raise ValueError(f"{archive} holds a file named '{name}', outside its own folder: it is not used")
    return [SourceVolume(Path(name), archive) for name in names]
