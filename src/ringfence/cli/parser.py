"""The parser that all commands share."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is answered with the mistake, not with a usage line before it."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and this message."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")
