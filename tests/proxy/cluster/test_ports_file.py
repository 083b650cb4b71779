from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.cluster.ports import SavedPorts
from shoal.proxy.cluster.ports_file import CorruptState, read_state, write_state
from shoal.proxy.cluster.state_files import NotOurs
from shoal.proxy.config.settings import Address
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from pathlib import Path

B1, B2, B3 = (Address(f"b{number}", 9092) for number in (1, 2, 3))


def test_a_state_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    nodes = {1: (20_001, B1), 2: (20_002, None), 10: (20_003, Address("::1", 9092))}
    path = tmp_path / "deep" / "state.json"
    assert read_state(path, "l") == SavedPorts({})
    write_state(path, "l", nodes)
    assert read_state(path, "l") == SavedPorts(nodes)
    write_state(path, "l", nodes, "the cluster")
    assert read_state(path, "l") == SavedPorts(nodes, "the cluster")
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


GOOD = {"version": 1, "listener": "l", "nodes": {"1": {"port": 20_001, "host": "b1", "upstream_port": 9092}}}


def test_a_state_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(GOOD))
    assert read_state(tmp_path / "state.json", "l") == SavedPorts({1: (20_001, Address("b1", 9092))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "it is of version 3, and this Shoal writes 2"),
        ({"nodes": []}, "nodes is not a table"),
        ({"nodes": {"x": GOOD["nodes"]["1"]}}, "invalid literal"),  # type: ignore[index]
        ({"nodes": {"1": {"port": 20_001}}}, "host"),
        ({"nodes": {"1": {"port": 0, "host": "b1", "upstream_port": 9092}}}, "node 1 is"),
        ({"nodes": {"1": GOOD["nodes"]["1"], "2": GOOD["nodes"]["1"]}}, "two nodes have port"),  # type: ignore[index]
    ],
)
def test_a_state_file_that_is_not_right_is_told_clearly(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(CorruptState, match=message):
        read_state(path, "l")


def test_a_state_file_that_is_torn_is_one_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_state(path, "l", {1: (20_001, B1)})
    whole = path.read_text()
    for text in ("", whole[:-3], whole[:20]):
        path.write_text(text)
        with pytest.raises(CorruptState, match=r"it is not whole|it is empty"):
            read_state(path, "l")


@pytest.mark.parametrize("text", ["{", "[]", "3", "rubbish", "{}", json.dumps(GOOD | {"listener": "other"})])
def test_what_is_not_ours_is_told_of(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(
        NotOurs, match=r"is not a state file of listener 'l'.*Move it away, or choose another state-dir"
    ):
        read_state(path, "l")


def test_a_state_file_on_a_full_disk(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", 1 << 16) as disk:
        path = disk.path / "state.json"
        write_state(path, "l", {1: (20_001, B1)})
        disk.fill()
        with pytest.raises(OSError, match="No space left on device"):
            write_state(path, "l", {number: (20_000 + number, B1) for number in range(1000)})
        assert read_state(path, "l") == SavedPorts({1: (20_001, B1)}), "the old one stays"
        assert sorted(one.name for one in disk.path.iterdir()) == ["filler", "state.json"]
