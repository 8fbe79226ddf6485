"""For all tests: seeds, one process to fork from, slow files first, and GPU tests that skip by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from children import one_server


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread_each() -> None:
    torch.set_num_threads(1)  # tiny tensors: threads only get in each other's way


@pytest.fixture(scope="session", autouse=True)
def _one_server() -> Iterator[None]:
    with one_server():
        yield


SLOWEST = (
    "weak/training/test_killed_rank.py",
    "faults/test_quick.py",
    "weak/training/test_ranks.py",
    "test_examples.py",
    "test_packaging.py",
    "weak/experiments/test_compare.py",
    "test_python_page.py",
    "weak/ranks/test_cases.py",
    "methods/test_sharded.py",
    "test_rate_limit.py",
    "test_lightning.py",
    "cli/test_compare_command.py",
    "test_resume.py",
    "methods/test_dual_steps.py",
    "weak/experiments/test_config_files.py",
)
"""Files that come first, so that none of them is what everybody waits for in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    first = {here / name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
