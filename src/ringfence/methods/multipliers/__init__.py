"""Where the multipliers of one constraint are kept: one way per file, behind the same few verbs."""

from ringfence.methods.multipliers.indexed import Indexed
from ringfence.methods.multipliers.network import Network
from ringfence.methods.multipliers.same_rows import SameRows
from ringfence.methods.multipliers.sharded import Sharded
from ringfence.methods.multipliers.shared import Shared
from ringfence.methods.multipliers.store import Climb, Multipliers

__all__ = ["Climb", "Indexed", "Multipliers", "Network", "SameRows", "Sharded", "Shared"]
