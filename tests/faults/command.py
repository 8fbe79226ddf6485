"""The command line of the long run."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from faults import record as records
from faults.record import PARTS, ROOT

QUICK: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("fuzz", (), 60),
    ("kills", ("prepare, NIfTI", "predict, MetaImage", "evaluate"), 8),
    ("kills", ("train, penalty",), 4),
    ("disks", ("prepare, zip", "evaluate"), 4),
    ("pairs", ("prepare, prepare of another size", "predict, train"), 3),
    ("bombs", (), 40),
)
"""What is run with `make test`: parts, names, counts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked; 1 if any count that should be 0 is not."""
    options = _parser().parse_args(arguments)
    out = Path(options.out).resolve()
    if options.part == "take":
        for file in options.names:
            records.take(out, json.loads(Path(file).read_text(encoding="utf-8")))
    if options.part in ("table", "take"):
        record = records.read_record(out)
        (out / records.MARKDOWN).write_text(records.as_markdown(record))
        records.write_page(record)
        return 0
    _preload()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made in memory is removed
    if options.only is not None:
        return _one(options)
    plan = (
        [(part, (), options.count) for part in PARTS]
        if options.part == "all"
        else [(options.part, options.names, options.count)]
    )
    with tempfile.TemporaryDirectory(prefix="ringfence-faults-", dir=_memory_folder()) as folder:
        for part, names, count in QUICK if options.part == "quick" else plan:
            _run(part, names, count, options, out, Path(folder))
    record = records.read_record(out)
    print(records.as_markdown(record))
    if out == ROOT / "results" / "faults":
        records.write_page(record)
    return int(records.faults(record) > 0)


def _run(
    part: str, names: Sequence[str], count: int | None, options: argparse.Namespace, out: Path, folder: Path
) -> None:
    kept = Path(options.kept).resolve()
    if part == "fuzz":
        fuzz(names, count, options, out, kept, folder)
        return
    module = import_module(f"faults.{part}")
    for name, counts, seconds in module.run(
        names, folder / part, kept, seed=options.seed, count=count, jobs=options.jobs
    ):
        records.merge(out, part, name, counts, seed=options.seed, seconds=seconds)
        print(f"{part} {name}: {counts} in {seconds:.0f} s", flush=True)


def fuzz(
    names: Sequence[str], count: int | None, options: argparse.Namespace, out: Path, kept: Path, folder: Path
) -> None:
    """Every reader, or those named."""
    from faults.fuzzing import Fuzzing, as_counts
    from faults.readers import READERS

    for name in names or READERS:
        reader = READERS[name]
        place = folder / "fuzz" / name
        (place / "valid").mkdir(parents=True)
        shutil.rmtree(kept / name, ignore_errors=True)
        reader.prepare(place / "valid")
        began = time.monotonic()
        fuzzing = Fuzzing(reader, place, kept / name, options.seed, options.jobs)
        try:
            fuzzing.run(count or reader.count)
        finally:
            seconds = time.monotonic() - began
            counts = fuzzing.total()
            records.merge(out, "fuzz", name, as_counts(counts), seed=options.seed, seconds=seconds)
            rate = sum(counts.values()) / max(seconds, 1e-9)
            print(f"{name:<20} {rate:8.0f}/s {seconds:6.0f} s  {dict(counts)}", flush=True)
            shutil.rmtree(place, ignore_errors=True)


def _one(options: argparse.Namespace) -> int:
    from faults.fuzzing import one_input
    from faults.readers import READERS

    folder = Path(tempfile.mkdtemp(prefix="ringfence-input-"))
    (folder / "valid").mkdir()
    reader = READERS[options.names[0]]
    reader.prepare(folder / "valid")
    outcome, what, _ = one_input(reader, folder, options.seed, options.only)
    print(f"{outcome}: {what}")
    return int(outcome not in ("accepted", "refused"))


def _preload() -> None:
    """Everything once, before anything is forked; there must be no threads then."""
    import warnings

    import matplotlib.pyplot
    import monai.losses
    import monai.networks.nets
    import nibabel
    import pytorch_lightning
    import SimpleITK
    import torch

    import ringfence

    for module in pkgutil.walk_packages(ringfence.__path__, "ringfence."):  # nor will an edit be half seen
        of_triton = module.name.endswith("kernels") or module.name == "ringfence.segmentation.fused.launch"
        if not module.name.endswith("__main__") and not of_triton:
            import_module(module.name)
    torch.set_num_threads(1)
    SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    assert all((matplotlib.pyplot, monai.losses, monai.networks.nets, nibabel, pytorch_lightning))


def _memory_folder() -> str | None:
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/faults", description=__doc__)
    parser.add_argument(
        "part",
        choices=("all", "quick", *PARTS, "take", "table"),
        help="what to run; take: the counts of another machine's faults.json; table: write the page anew",
    )
    parser.add_argument("names", nargs="*", help="some readers, commands or files alone")
    parser.add_argument("--out", default="results/faults", help="where the counts go (default: %(default)s)")
    parser.add_argument(
        "--kept", default="runs/faults", help="where faults and their inputs go (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--count", type=int, help="of each reader or command (default: its own); of bombs, the limit in MB"
    )
    parser.add_argument("--only", type=int, metavar="N", help="input N of one reader, in this process")
    return parser
