"""What a training command imports: Lightning, and nothing that torchmetrics wants for other people's measures."""

from __future__ import annotations

from children import python

SCRIPT = """
import sys
from importlib.metadata import PackageNotFoundError
from ringfence.cli import quick_start
quick_start.import_lightning("cpu", "this test")
assert "pytorch_lightning" in sys.modules
print("scipy.signal" in sys.modules, "transformers" in sys.modules)
from lightning_utilities.core import imports
print(imports.package_available("scipy"), bool(imports._version("scipy")))
import scipy.signal
"""


def test_torchmetrics_does_not_see_what_it_would_import_for_others_and_everybody_else_does() -> None:
    done = python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False", "True", "True"]
