"""Every reader that is fuzzed, by name."""

from __future__ import annotations

from faults.reader import Reader
from faults.readers.annotations import BoxesCsv, BoxesJson, Coco, Scribbles, Sizes
from faults.readers.checkpoint import Checkpoint
from faults.readers.config import Config
from faults.readers.datasets import Decathlon, NnUNet, Splits
from faults.readers.models import ModelFile, OldModel
from faults.readers.prepared import CaseFile, Manifest, Sources
from faults.readers.promise12 import Promise12
from faults.readers.run_folder import Report, Resume
from faults.readers.unfinished import Unfinished
from faults.readers.volumes import MetaImageFile, MetaImagePair, NiftiFile, PngFile

READERS: dict[str, Reader] = {
    one.name: one
    for one in (
        *(MetaImageFile(), MetaImagePair(), NiftiFile(), PngFile(), Promise12()),
        *(BoxesCsv(), BoxesJson(), Coco(), Sizes(), Scribbles()),
        *(NnUNet(), Decathlon(), Splits()),
        *(Manifest(), Sources(), CaseFile()),
        *(Config(), Report(), Resume(), Unfinished()),
        *(ModelFile(), OldModel(), Checkpoint()),
    )
}
