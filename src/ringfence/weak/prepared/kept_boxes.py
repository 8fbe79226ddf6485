"""The table of boxes that came with a data set, and is kept with the prepared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringfence.files import TEXT, checksum_of, read_bytes, remove, write_bytes
from ringfence.weak.datasets.box_table import NAMES, BoxTable
from ringfence.weak.prepared import fields


@dataclass(frozen=True)
class KeptBoxes:
    """A file of boxes in the folder of a prepared set.

    Attributes:
        file: its name.
        sha256: of what it held when it was prepared.
    """

    file: str
    sha256: str

    def path_in(self, folder: Path) -> Path:
        """Where it is; one that is missing, or is not what was prepared, is refused."""
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: prepare the set again, or give boxes by data.boxes")
        if not self.is_in(folder):
            raise ValueError(
                f"{path} was changed since it was prepared: change the one beside the images, and prepare the set "
                "again, which does only what is missing; or give yours by data.boxes"
            )
        return path

    def is_in(self, folder: Path) -> bool:
        """Whether it is there as it was."""
        path = folder / self.file
        return path.is_file() and checksum_of(read_bytes(path, TEXT)) == self.sha256

    def to_facts(self) -> dict[str, str]:
        """As plain values, for the manifest."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Any) -> KeptBoxes:
        """From the manifest's values, checked."""
        known: Mapping[str, Any] = fields.mapping(facts, "boxes")
        found = cls(fields.file_name(known, "file"), fields.sha256(known, "sha256"))
        if found.file not in NAMES:
            raise ValueError(f"boxes: file should be {' or '.join(NAMES)}")
        return found


def check_kept(table: BoxTable | None, folder: Path, before: KeptBoxes | None) -> None:
    """Refuse to write over a file that no earlier call kept: it may be somebody's work.

    Args:
        table: the table; None if there is none.
        folder: of the prepared set.
        before: what an earlier call kept there.
    """
    made = KeptBoxes(table.name, table.sha256) if table else None
    known = [one for one in (made, before) if one is not None]
    for name in {one.file for one in known}:
        if (folder / name).exists() and not any(one.file == name and one.is_in(folder) for one in known):
            raise FileExistsError(
                f"{folder / name} is not what was prepared: move it beside the images, or elsewhere, and run the "
                "same command again. Nothing was changed"
            )


def keep_boxes(table: BoxTable | None, folder: Path, before: KeptBoxes | None = None) -> KeptBoxes | None:
    """Write the table of a data set into the folder of the prepared one, in place of the one before."""
    made = KeptBoxes(table.name, table.sha256) if table else None
    if before is not None and (made is None or made.file != before.file):
        remove([folder / before.file])
    if table is not None:
        write_bytes(folder / table.name, table.text.encode())
    return made
