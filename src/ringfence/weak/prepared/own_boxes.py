"""The table of boxes that came with a data set, and is kept with the prepared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringfence.files import TEXT, checksum, checksum_of, read_bytes, remove, write_bytes
from ringfence.weak.datasets.boxes_beside import BOXES
from ringfence.weak.prepared import fields


@dataclass(frozen=True)
class OwnBoxes:
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
            raise FileNotFoundError(f"{path} is missing: prepare the set again, or give boxes by --data.boxes FILE")
        if checksum(path) != self.sha256:
            raise ValueError(
                f"{path} was changed since it was prepared: change the one beside the images, and prepare the set "
                "again, which does only what is missing; or give yours by --data.boxes FILE"
            )
        return path

    def to_facts(self) -> dict[str, str]:
        """As plain values, for the manifest."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Any) -> OwnBoxes:
        """From the manifest's values, checked."""
        known: Mapping[str, Any] = fields.mapping(facts, "boxes")
        found = cls(fields.file_name(known, "file"), fields.sha256(known, "sha256"))
        if found.file not in BOXES:
            raise ValueError(f"boxes: file should be {' or '.join(BOXES)}")
        return found


def keep_boxes(source: Path | None, folder: Path) -> OwnBoxes | None:
    """Copy the table of a data set into the folder of the prepared one; an older one there is replaced."""
    if source is None:
        remove(folder / name for name in BOXES)
        return None
    content = read_bytes(source, TEXT)
    remove(folder / name for name in BOXES if name != source.name)
    write_bytes(folder / source.name, content)
    return OwnBoxes(source.name, checksum_of(content))
