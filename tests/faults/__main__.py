"""``python tests/faults``: the long run, or a part of it."""

import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
    os.environ[name] = "1"  # children are forked: there may be no threads
os.environ["MPLBACKEND"] = "agg"
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from faults.command import main  # noqa: E402 - found only now

if __name__ == "__main__":
    sys.exit(main())
