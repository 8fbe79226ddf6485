"""What came out of preparing a data set."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.hints import one_line
from ringfence.weak.prepared.prepared_set import PreparedSet
from ringfence.weak.prepared.summary import as_html, as_text, counted


@dataclass(frozen=True, repr=False)
class Preparation:
    """A prepared set, and how it went. As text or in a notebook: cases, splits, size, classes, folder.

    Attributes:
        prepared: the set.
        failures: a line for each case that was left out.
        kept: how many of its cases an earlier call had made.
        split: in words, where the choice of the validation cases comes from.
        remarks: what looks odd, a line each.
    """

    prepared: PreparedSet
    failures: tuple[str, ...] = ()
    kept: int = 0
    split: str = ""
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = as_text(self._title(), self.prepared.rows(self.split))
        if self.failures:
            text += "\n".join(["\nleft out:", *(f"  {one_line(line)}" for line in self.failures)])
        return "\n".join([text, *self.remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = self.prepared.rows(self.split)
        return as_html(
            self._title(),
            [*rows, *(("left out", line) for line in self.failures), *(("note", line) for line in self.remarks)],
        )

    def _title(self) -> str:
        before = f", {self.kept} of them ready before" if self.kept else ""
        return f"{self.prepared.name}: {counted(case.shape[0] for case in self.prepared.cases)}{before}"
