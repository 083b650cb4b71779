"""`[capture.raw]` of `shoal.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import RawCaptureSettings
from shoal.proxy.config.toml import read_config

from .test_toml import GOOD

FILE = Path("etc/shoal.toml")
CAPTURE = GOOD + '\n[capture]\ndirectory = "index"\n'
RAW = CAPTURE + "[capture.raw]\n"


def raw(text: str) -> RawCaptureSettings | None:
    return read_config(text, FILE).raw_capture


def test_there_is_none_unless_it_is_written() -> None:
    assert raw(CAPTURE) is None
    assert raw(RAW) == RawCaptureSettings(directory=Path("etc/index"))


def test_everything_that_is_written_arrives() -> None:
    text = (
        'directory = "raw"\ntopics = ["orders"]\nclients = ["a", "b"]\napis = ["Produce", "ListOffsets"]\n'
        'max-file-bytes = "1MiB"\nmax-bytes = "2MiB"\nqueue-bytes = 4096\n'
    )

    assert raw(RAW + text) == RawCaptureSettings(
        directory=Path("etc/raw"),
        topics=frozenset({"orders"}),
        clients=frozenset({"a", "b"}),
        apis=frozenset({0, 2}),
        max_file_bytes=1 << 20,
        max_bytes=2 << 20,
        queue_bytes=4096,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('apis = ["produce"]', 'capture.raw.apis: unknown value "produce"; did you mean "Produce"?'),
        ("queue-bytes = 0", "capture.raw.queue-bytes"),
        ('max-bytes = "1MiB"', "capture.raw.max-bytes: 1048576 is below twice max-file-bytes"),
        ('topic = "orders"', 'capture.raw.topic: unknown key; did you mean "topics"?'),
    ],
)
def test_what_is_wrong_is_told(text: str, expected: str) -> None:
    with pytest.raises(OperatorError) as caught:
        raw(RAW + text)

    assert expected in str(caught.value)
