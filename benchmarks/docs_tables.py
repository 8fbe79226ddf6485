"""Put tables of results/ into the pages of docs/ that show them, each between its own marks.

    python benchmarks/docs_tables.py

A mark is a line `<!-- FILE -->`; what follows, up to `<!-- end -->`, is that file's text. tests/test_results.py
compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / name for name in ("performance.md", "plan.md", "plan-choices.md")]
BLOCK = re.compile(r"(<!-- (results/\S+\.md) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with every block as its file has it."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{(ROOT / found[2]).read_text(encoding='utf-8').strip()}\n\n{found[3]}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
