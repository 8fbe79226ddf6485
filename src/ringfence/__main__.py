"""``python -m ringfence`` is ``ringfence``."""

import sys

from ringfence.cli import main

sys.exit(main())
