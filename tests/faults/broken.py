"""Readers that are broken on purpose: a harness that does not see it is worth nothing. ``python tests/faults/broken.py``."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from faults.canary import MODULE, SECRET
from faults.fuzzing import Fuzzing
from faults.reader import Reader, expect


class Broken(Reader):
    """Reads a number; each input is one, and every fifth shows the fault."""

    name: ClassVar[str] = "broken"

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def prepare(self, folder: Path) -> None:
        pass

    @property
    def valid(self) -> int:
        return 2

    def write(self, folder: Path, rng: random.Random, number: int) -> Path:
        path = folder / "number.txt"
        path.write_text(str(number))
        return path

    def read(self, path: Path) -> Any:
        number = int(path.read_text())
        if number % 5 == 4:
            return getattr(self, f"_{self.fault}")(path, number)
        if number % 5 == 3:
            raise ValueError(f"{path} holds {number}, which is not wanted")
        return number

    def check(self, path: Path, found: Any) -> str | None:
        expect(found == int(path.read_text()), f"{found}")
        return None

    def _wrong(self, path: Path, number: int) -> Any:
        return number + 1

    def _key(self, path: Path, number: int) -> Any:
        return {}["x"]

    def _hangs(self, path: Path, number: int) -> Any:
        time.sleep(60)

    def _aborts(self, path: Path, number: int) -> Any:
        os.abort()

    def _exits(self, path: Path, number: int) -> Any:
        sys.exit(0)

    def _connects(self, path: Path, number: int) -> Any:
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except OSError as error:
            raise ValueError(f"{path} is not there") from error

    def _starts(self, path: Path, number: int) -> Any:
        try:
            subprocess.run(["true"])
        except OSError as error:
            raise ValueError(f"{path} is not there") from error

    def _writes(self, path: Path, number: int) -> Any:
        (path.parent.parent.parent / "elsewhere.txt").write_text("x")
        return number

    def _renames(self, path: Path, number: int) -> Any:
        path.rename(path.parent.parent.parent / "elsewhere.txt")
        return number

    def _spies(self, path: Path, number: int) -> Any:
        (path.parent.parent.parent / SECRET).read_text()
        return number

    def _imports(self, path: Path, number: int) -> Any:
        sys.path.insert(0, str(path.parent.parent))
        sys.modules.pop(MODULE, None)
        __import__(MODULE)
        return number

    def _evaluates(self, path: Path, number: int) -> Any:
        return eval(f"{number} + 0")

    def _eats(self, path: Path, number: int) -> Any:
        return len(b"x" * (200_000_000 + number)) - 200_000_000

    def _silent(self, path: Path, number: int) -> Any:
        raise ValueError

    def _bare(self, path: Path, number: int) -> Any:
        (path.parent / "missing").read_text()

    def _shouts(self, path: Path, number: int) -> Any:
        raise ValueError(f"{path}: \x1b[2J")

    def _nameless(self, path: Path, number: int) -> Any:
        raise ValueError("it is damaged")


class Strict(Broken):
    """Refuses what is valid."""

    def read(self, path: Path) -> Any:
        raise ValueError(f"{path} is not read")


EXPECTED = {
    "wrong": "wrong",
    "key": "traceback",
    "exits": "traceback",
    "hangs": "hang",
    "aborts": "crash",
    **dict.fromkeys(("connects", "starts", "writes", "renames", "spies", "imports", "evaluates"), "code"),
    "eats": "memory",
    "silent": "unclear",
    "bare": "unclear",
    "shouts": "unclear",
    "nameless": "unclear",
}
"""How each fault must be counted."""


def main(faults: list[str]) -> None:
    """The counts of each fault, in JSON: 20 inputs, of which four show it (one, if it hangs)."""
    found = {}
    for fault in faults or [*EXPECTED, "strict"]:
        with tempfile.TemporaryDirectory() as folder:
            reader = Strict("wrong") if fault == "strict" else Broken(fault)
            fuzzing = Fuzzing(reader, Path(folder), Path(folder) / "kept", seed=0, jobs=2, hang=3.0)
            found[fault] = dict(fuzzing.run(8 if fault == "hangs" else 20))
            lines = (Path(folder) / "kept" / "faults.jsonl").read_text().splitlines()
            found[fault]["noted"] = len(lines)
            found[fault]["kept"] = len(list((Path(folder) / "kept").glob("broken-*")))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
