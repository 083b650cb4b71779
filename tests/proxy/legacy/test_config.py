"""`legacy = true` in `shoal.toml`."""

from __future__ import annotations

import pytest

from shoal.proxy.config.settings import Isolation, LegacySettings, SetCompression
from tests.proxy.config.test_toml import problems, read

FILE = """
[[cluster]]
name = "a"
bootstrap = "a1:9092"

[[listener]]
name = "old"
cluster = "a"
listen = "127.0.0.1:19092"
ports = "19093-19192"
legacy = true
[listener.legacy-options]
chunk-bytes = "16KiB"
budget-bytes = "8MiB"
fetch-bytes = "512KiB"
compression = "none"
isolation = "read-uncommitted"
"""


def test_what_is_written_arrives() -> None:
    (listener,) = read(FILE).listeners

    assert listener.legacy
    assert listener.legacy_options == LegacySettings(
        chunk_bytes=16 << 10,
        budget_bytes=8 << 20,
        fetch_bytes=512 << 10,
        compression=SetCompression.NONE,
        isolation=Isolation.READ_UNCOMMITTED,
    )


def test_without_a_table_the_defaults_hold() -> None:
    (listener,) = read(FILE.partition("[listener.legacy-options]")[0]).listeners

    assert listener.legacy
    assert listener.legacy_options == LegacySettings()


def test_legacy_clients_and_joined_requests_may_share_a_listener() -> None:
    (listener,) = read(FILE.replace("legacy = true", "legacy = true\ncoalesce = true")).listeners

    assert listener.legacy
    assert listener.coalesce


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("legacy = true\n", "", "listener[0].legacy-options: needs legacy = true"),
        ("legacy = true\n", 'legacy = true\nmode = "unwrap"\n', 'listener[0].legacy: needs mode = "plain"'),
        ('"16KiB"', '"15KiB"', "listener[0].legacy-options.chunk-bytes: 15360 is not between 16KiB and 1MiB"),
        ('"16KiB"', "1048577", "listener[0].legacy-options.chunk-bytes: 1048577 is not between 16KiB and 1MiB"),
        ('"8MiB"', '"512KiB"', "listener[0].legacy-options.budget-bytes: 524288 is too small for one response"),
        ('"512KiB"', '"64MiB"', "listener[0].legacy-options.fetch-bytes: 67108864 is above limits.held-response-bytes"),
        ('"512KiB"', "0", "listener[0].legacy-options.fetch-bytes: 0 is too small"),
        ('"none"', '""', 'listener[0].legacy-options.compression: unknown value ""; write one of: source, none'),
        ('"none"', '"lz4"', 'listener[0].legacy-options.compression: unknown value "lz4"; write one of: source, none'),
        (
            '"read-uncommitted"',
            '"dirty"',
            'legacy-options.isolation: unknown value "dirty"; write one of: read-committed',
        ),
        ("chunk-bytes", "chunk", 'listener[0].legacy-options.chunk: unknown key; did you mean "chunk-bytes"?'),
    ],
)
def test_what_is_wrong_is_told(old: str, new: str, expected: str) -> None:
    assert FILE.count(old) == 1
    assert expected in problems(FILE.replace(old, new))
