"""Tables and figures of comparisons, from the files that runs leave."""

from ringfence.report.comparison import Comparison, read_comparison
from ringfence.report.write import write_report

__all__ = ["Comparison", "read_comparison", "write_report"]
