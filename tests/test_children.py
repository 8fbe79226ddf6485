"""Processes of tests that hang say where; those that are forked are as those that are spawned."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

import children

HANGS = """
import os, time

def deep():
    os.write(1, b"ready\\n")
    time.sleep(600)

os.fork()  # whom it started hangs as well
deep()
"""


def test_who_hangs_shows_where_and_is_ended() -> None:
    process = children.started([sys.executable, "-c", HANGS])
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    with pytest.raises(pytest.fail.Exception, match="did not end in 0 s") as failed:
        children.ended(process, patience=0.1)
    assert str(failed.value).count("in deep") == 2
    assert process.returncode == -signal.SIGABRT


def test_how_it_ended_what_it_said_and_what_it_was_told() -> None:
    code = "import os, sys\nprint(sys.stdin.read() + os.environ['WHO'])\nprint('err', file=sys.stderr)\nsys.exit(3)"
    done = children.python("-c", code, typed="hello ", WHO="you")
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello you\n", "err\n")


def noted(file: Path) -> None:
    file.write_text(f"{os.environ['WHO']} {'torch' in sys.modules}")


def test_quick_processes_have_our_environment_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("me", "you"):
        monkeypatch.setenv("WHO", who)
        with children.quick_processes():
            process = multiprocessing.get_context("spawn").Process(target=noted, args=(tmp_path / who,))
            process.start()
            process.join(children.PATIENCE)
        assert process.exitcode == 0
        assert (tmp_path / who).read_text() == f"{who} True"
    assert "forkserver" not in str(type(multiprocessing.get_context("spawn").Process))
