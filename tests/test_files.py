"""Files are read only if they are files, and written whole, to the disk, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from children import python
from ringfence import files
from ringfence.files import (
    WriteFailed,
    is_part,
    opened,
    read_bytes,
    read_text,
    remove_parts,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Reading


def test_what_is_no_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: a FIFO named x.nii.gz blocked predict for ever."""
    os.mkfifo(tmp_path / "x.nii.gz")
    (tmp_path / "folder.mhd").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "x.nii.gz")
    for path, kind in (
        (tmp_path / "x.nii.gz", "a pipe"),
        (link, "a pipe"),
        (tmp_path / "folder.mhd", "a folder"),
        (Path("/dev/zero"), "a device"),
    ):
        with pytest.raises(ValueError, match=f"is {kind}.*, not a file that can be read"):
            opened(path)
    with socket.socket(socket.AF_UNIX) as one:
        monkeypatch.chdir(tmp_path)  # a socket's name is short
        one.bind("s")
        with pytest.raises(OSError, match="s cannot be read"):
            opened(Path("s"))
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        opened(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is no name of a file"):
        opened(Path("a\0b"))
    with pytest.raises(OSError, match="cannot be read: File name too long"):
        opened(tmp_path / ("x" * 300))


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="a has 5 bytes, and at most 4 are read of such a file"):
        read_bytes(tmp_path / "a", 4)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ValueError, match="sparse has 1,000,000,000,000 bytes"):
        read_text(tmp_path / "sparse")
    (tmp_path / "b").write_bytes(b"a\xff")
    with pytest.raises(ValueError, match=r"b is not text in UTF-8 \(byte 1\)"):
        read_text(tmp_path / "b")


# Writing


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.csv"
    write_text(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "new \ud800")

    def broken(number: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(WriteFailed, match=r"table.csv cannot be written: the disk reports an error"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert names(tmp_path) == ["table.csv"]


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: after a loss of power, a file that was renamed before it was synchronised may be empty."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(number: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file")
        fsync(number)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_bytes(tmp_path / "a", b"1")
    assert done == ["file", "name", "folder"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some room"),
        (errno.EDQUOT, "your disk quota is used up; free some room"),
        (errno.EFBIG, r"files may not be as large here \(ulimit -f"),
        (errno.EROFS, "the file system is read-only; choose another folder"),
        (errno.EACCES, "permission denied; choose another folder"),
    ],
)
def test_why_it_cannot_be_written_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """D6."""

    def refuse(self: object, target: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(WriteFailed, match=f"a cannot be written: {words}.*as it was before") as caught:
        write_bytes(tmp_path / "a", b"1")
    assert caught.value.errno == number
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_a_limit_of_file_sizes_leaves_the_old_file(tmp_path: Path) -> None:
    """D6, with the system's own limit."""
    write_bytes(tmp_path / "a", b"old")
    code = f"""
import resource, sys
from pathlib import Path
from ringfence.files import write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(Path({str(tmp_path / "a")!r}), bytes(5000))
except OSError as error:
    print(error)
"""
    said = python("-c", code).stdout
    assert "a cannot be written: files may not be as large here" in said
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_names_may_be_as_long_as_the_system_has_them(tmp_path: Path) -> None:
    for name in ("x" * 255, "ä" * 127):
        write_bytes(tmp_path / name, b"1")
        assert (tmp_path / name).read_bytes() == b"1"
    with pytest.raises(WriteFailed, match="the name is too long; choose a shorter one"):
        write_bytes(tmp_path / ("x" * 256), b"1")


KILLED = """
import os, signal, sys
from pathlib import Path
from ringfence import files
def kill(number):
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = kill
files.write_bytes(Path(sys.argv[1]), b"new")
"""


def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path: Path) -> None:
    """D12."""
    file = tmp_path / "a.csv"
    write_bytes(file, b"old")
    killed = python("-c", KILLED, file)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    assert file.read_bytes() == b"old"
    assert is_part(names(tmp_path)[0])
    write_bytes(tmp_path / "other.csv", b"1")  # no business of this one
    assert len(names(tmp_path)) == 3
    write_bytes(file, b"new")
    assert names(tmp_path) == ["a.csv", "other.csv"]


def test_what_is_being_written_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def meanwhile(number: int) -> None:
        code = "import sys; from pathlib import Path; from ringfence.files import remove_parts; "
        done = python("-c", code + "remove_parts(Path(sys.argv[1]))", tmp_path)
        assert done.returncode == 0, done.stderr
        assert any(is_part(name) for name in names(tmp_path))
        fsync(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", meanwhile)
        patch.setattr(files, "sync_folder", lambda folder: None)
        write_bytes(tmp_path / "a", b"1")
    assert names(tmp_path) == ["a"]


def test_a_part_that_was_taken_for_a_leftover_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a part and holding it, another process may remove it."""
    held, calls = files._held, []

    def removed(file: object) -> bool:
        calls.append(1)
        if len(calls) == 1:
            for part in tmp_path.glob(".*.part"):
                part.unlink()
        return held(file)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_held", removed)
    write_bytes(tmp_path / "a", b"1")
    assert len(calls) == 2
    assert names(tmp_path) == ["a"]


def test_only_parts_are_removed(tmp_path: Path) -> None:
    kept = ["a.csv", ".a.csv", "a.csv.12.part", ".a.part", ".a.xyz.part"]
    for name in (*kept, ".a.csv.4711.part", ".a.csv.0a1b2c3d.part"):
        (tmp_path / name).write_text("")
    (tmp_path / ".folder.12.part").mkdir()
    remove_parts(tmp_path)
    assert names(tmp_path) == sorted([*kept, ".folder.12.part"])
