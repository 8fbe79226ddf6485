"""Files of settings from anywhere: settings, or one line; through the command's own way of reading them."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringfence.cli.train import TRAIN
from ringfence.weak import TrainSettings, from_file, from_preset
from ringfence.weak.experiments.config_files import LONGEST, parse_config
from ringfence.weak.experiments.parsing import as_config

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + one)}: &{chr(98 + one)} [{','.join(['*' + chr(97 + one)] * 9)}]\n" for one in range(9)
)
IN_ONE_LINE = "{" + ", ".join(BOMB.strip().splitlines()) + "}"


def said(tmp_path: Path, content: str | bytes) -> str:
    """What is said of a file of settings, by the command and in Python: one line, and soon."""
    file = tmp_path / "c.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    began, lines = time.monotonic(), []
    for read in (lambda: TRAIN.parsed(["--config", str(file)]), lambda: from_file(TrainSettings, file)):
        with pytest.raises((ValueError, OSError)) as caught:
            read()
        lines.append(str(caught.value))
    assert time.monotonic() - began < 20
    assert all(len(line.splitlines()) == 1 and len(line) < 700 for line in lines)
    return lines[0].replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOMB, "--config FILE stands for more than 100,000 values"),
        ("constraints:\n" + "".join(f"  {line}\n" for line in BOMB.splitlines()), "--config FILE stands for more"),
        (f"constraints: {IN_ONE_LINE!r}", "--config FILE stands for more than 100,000 values"),
        ("[" * 3000, "--config FILE cannot be used: lists or names within each other, more than 64 levels deep"),
        ("{a: " * 3000, "--config FILE cannot be used: lists or names within each other"),
        ("- " * 3000 + "x", "--config FILE cannot be used: lists or names within each other"),
        (f"training: {{lr: {'9' * 400}}}", "--config FILE cannot be used: the number '999"),
        ("training: {lr: 1e999}", "--config FILE cannot be used: inf is no number that can be used"),
        ("training: {lr: .nan}", "--config FILE cannot be used: nan is no number that can be used"),
        ("training: {epochs: -9223372036854775809}", "--config FILE cannot be used: -9223372036854775809 is no"),
        ("training: {lr: 1}\ntraining: {lr: 2}", "--config FILE cannot be used: 'training' is there twice"),
        ("training: {lr: 1, lr: 2}", "--config FILE cannot be used: 'lr' is there twice"),
        ("training: {lr: 2020-01-01}", "training.lr: expected float. Got value: 2020-01-01"),
        ("out: !!timestamp 2020-01-01", "--config FILE cannot be used: datetime.date(2020, 1, 1) is no plain text"),
        ("out: !!binary aGVsbG8=", "--config FILE cannot be used: b'hello' is no plain text"),
        ("methods: !!set {a}", "--config FILE cannot be used: {'a'} is no plain text"),
        (
            "out: !!python/object/apply:os.system [ls]",
            "--config FILE is not YAML: could not determine a constructor",
        ),
        ("out: 'a\0b'", "--config FILE cannot be used: \"out: 'a\\x00b'\" holds a null character"),
        ('out: "a\\0b"', "--config FILE cannot be used: 'a\\x00b' holds a null character"),
        ('out: "\\ud800"', "--config FILE "),
        ("training: {lr: 1}".encode("utf-16"), "--config FILE is not text in UTF-8 (byte 0): save it as such"),
        ("training: &a {lr: *a}", "--config FILE: the alias *a is inside of what it stands for"),
        ("1: 2", "--config FILE cannot be used: the name 1 is no text; put it in quotes"),
        ("? [a]\n: b", "--config FILE is not YAML: while constructing a mapping"),
        (
            "x" * (LONGEST + 1),
            "--config FILE cannot be used: it has 100,001 characters, and settings at most",
        ),
        ("data: {patch: [" + "1," * 6000 + "]}", "--config FILE cannot be used: it has more than 5,000 values"),
        ("data: {patch: [1, null, 3]}", "data.patch: expected int. Got value: None"),
        ("method: {a: 1}", "method: expected str. Got value: {'a': 1}"),
        ("3", "the file of --config holds no settings"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_files_that_no_reader_should_follow(tmp_path: Path, content: str | bytes, message: str) -> None:
    """D8 and D11: aliases ran on for minutes; depth, 1e999 and 400 digits ended in tracebacks."""
    assert said(tmp_path, content).startswith(message)


@pytest.mark.parametrize("text", ["\ufefftraining: {lr: 0.1}", "training:\r\n  lr: 0.1\r\n", "training: {lr: 1e-1}", "out: 2020-01-01\ntraining: {lr: 0.1}"])  # fmt: skip
def test_what_editors_write_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_bytes(text.encode("utf-8"))
    assert from_file(TrainSettings, tmp_path / "c.yaml").training.lr == 0.1
    assert TRAIN.parsed(["--config", str(tmp_path / "c.yaml")])[0].training.lr == 0.1


@pytest.mark.parametrize("words", [["--training.lr", IN_ONE_LINE], ["--constraints", "[" * 3000], ["--constraints.strips.width", "[" * 3000], ["--training.lr", "9" * 400], ["--constraints.strips", "{a: 1, a: 2}"], ["--config=a\0b"], ["--network.init_args", IN_ONE_LINE]], ids=lambda words: words[0])  # fmt: skip
def test_values_on_the_command_line_are_bounded_too(words: list[str]) -> None:
    """D8: the same, without a file."""
    began = time.monotonic()
    with pytest.raises((ValueError, OSError)) as caught:
        TRAIN.parsed(words)
    assert len(str(caught.value).splitlines()) == 1
    assert time.monotonic() - began < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_file_of_settings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.yaml")
    with pytest.raises(ValueError, match=r"--config .*c.yaml is a pipe \(FIFO\), not a file that can be read"):
        TRAIN.parsed(["--config", str(tmp_path / "c.yaml")])


def test_plain_settings_come_back() -> None:
    config = as_config(from_preset(TrainSettings, "boxes"))
    assert parse_config(yaml.safe_dump(config), "it") == yaml.safe_load(yaml.safe_dump(config))


VALUES: list[Any] = [None, True, 0, -1, 3.7, 2**62, 1e308, "", "x", "[1", "{a: 1}", [], {}, [[1]], {"a": {"b": 1}}, "a.b.C", "2020-01-01", "\x1b[31m"]  # fmt: skip


def test_whatever_it_says_is_settings_or_one_line(tmp_path: Path) -> None:
    """Seeded mutations of a whole file of settings; the long run has more."""
    dice, good = random.Random(0), as_config(from_preset(TrainSettings, "boxes-small"))
    for _ in range(40):
        config = {name: dict(one) if isinstance(one, dict) else one for name, one in good.items()}
        for _ in range(dice.randint(1, 3)):
            name = dice.choice(list(config))
            inner = config[name]
            if isinstance(inner, dict) and inner and dice.random() < 0.8:
                inner[dice.choice([*inner, "x"])] = dice.choice(VALUES)
            else:
                config[name] = dice.choice(VALUES)
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
        try:
            TRAIN.parsed(["--config", str(tmp_path / "c.yaml")])
            lines = 1
        except (ValueError, TypeError, OSError) as error:
            lines = len(str(error).splitlines())
        assert lines == 1, config
