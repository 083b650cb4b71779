"""Each worker's share of the settings: what is configured holds for all of them together."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.rules.doubts import doubts
from shoal.proxy.config.shares import DIVIDED_KEYS, share_of
from shoal.proxy.config.toml import read_config

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Settings

CONFIG = """
workers = {workers}
[[cluster]]
name = "c"
bootstrap = "a:9092"
[[cluster]]
name = "d"
bootstrap = "b:9092"
[[listener]]
name = "plain"
cluster = "c"
listen = "127.0.0.1:1000"
ports = "1001-1009"
max-connections = 1001
coalesce = true
legacy = true
[listener.access]
connections-per-address = 10
new-connections-per-second = 5.0
bytes-per-second = 100001
client-bytes-per-second = 5000
"""
MIRROR = """
[[listener]]
name = "source"
cluster = "c"
listen = "127.0.0.1:2000"
ports = "2001-2009"
mode = "wrap"
pair = "target"
[[listener]]
name = "target"
cluster = "d"
listen = "127.0.0.1:3000"
ports = "3001-3009"
mode = "unwrap"
"""


def read(text: str) -> Settings:
    return read_config(text, Path("shoal.toml"))


def differences(path: str, one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(a) and is_dataclass(b) and a != b:
            found |= differences(f"{path}{field.name}.", a, b)
        elif a != b:
            found[f"{path}{field.name}"] = (a, b)
    return found


def test_shares_add_up_and_nothing_else_changes() -> None:
    whole = read(CONFIG.format(workers=3))
    shares = [share_of(whole, worker) for worker in (1, 2, 3)]
    found: dict[str, list[Any]] = {}
    for share in shares:
        changes = differences("", whole, share)
        changes.pop("workers")
        changes.pop("listeners")
        changes |= differences("", whole.listeners[0], share.listeners[0])
        for key, (total, part) in changes.items():
            found.setdefault(key, [total]).append(part)
    assert found.keys() == set(DIVIDED_KEYS) - {"raw_capture.queue_bytes"}
    for key, (total, *parts) in found.items():
        assert sum(parts) == pytest.approx(total), key
        assert max(parts) - min(parts) <= 1, key


def test_mirrors_are_the_first_workers_and_whole() -> None:
    whole = read(CONFIG.format(workers=2) + MIRROR)
    one, two = share_of(whole, 1), share_of(whole, 2)
    assert [x.name for x in one.listeners] == ["plain", "source", "target"]
    assert one.listeners[1:] == whole.listeners[1:]
    assert [x.name for x in two.listeners] == ["plain"]


def test_one_worker_has_the_whole() -> None:
    whole = read(CONFIG.format(workers=1) + MIRROR)
    assert share_of(whole, 1) is whole


def test_workers_that_have_nothing_to_do_are_doubtful() -> None:
    clusters = CONFIG.partition("[[listener]]")[0].format(workers=2)
    (doubt,) = doubts(read(clusters + MIRROR))
    assert "one worker serves all" in doubt
    assert not list(doubts(read(CONFIG.format(workers=2) + MIRROR)))


@pytest.mark.parametrize(
    ("workers", "more", "problem"),
    [
        ("0", "", "workers: 0 is not between 1 and 128"),
        ("129", "", "workers: 129 is not between 1 and 128"),
        ('"many"', "", "workers: 'many' is not a number of workers"),
        ("true", "", "workers: expected an integer or text, got bool"),
        ("11", "", "listener[0].access.connections-per-address: 10 cannot be divided among 11 workers"),
        ("2", "[limits]\nunauthenticated = 1", "limits.unauthenticated: 1 cannot be divided among 2 workers"),
        ("2", '[listener.coalescing]\nqueue-bytes = "1MiB"', "listener[0].coalescing.request-bytes: 1048576 is above"),
        (
            "2",
            '[listener.legacy-options]\nbudget-bytes = "2MiB"',
            "listener[0].legacy-options.budget-bytes: 1048576",
        ),
        ("5", "", "listener[0].access.client-bytes-per-second: 1000 is too small: at least 1024"),
        ("2", '[capture]\ndirectory="x"\nmax-bytes="300MiB"', "capture.max-bytes: 314572800 is below 3 times"),
    ],
)
def test_what_cannot_be_divided_is_an_error(workers: str, more: str, problem: str) -> None:
    with pytest.raises(OperatorError) as error:
        read(f"{CONFIG.format(workers=workers)}{more}\n")
    assert problem in str(error.value)
