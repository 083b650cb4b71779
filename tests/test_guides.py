"""Every configuration in README and the guides is a good one: what it leaves out is added, the rest is as printed.

Those of docs/security.md, with all files, are in tests/proxy/config/test_security_guide.py.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from shoal.proxy.config.toml import read_config

ROOT = Path(__file__).parents[1]
BLOCKS = [
    (path.name, block)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for block in re.findall(r"^```toml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
]
CLUSTER = '[[cluster]]\nname = "{name}"\nbootstrap = "broker-{name}:9092"\n'
PLAIN = '[[listener]]\nname = "p"\ncluster = "a"\nlisten = "127.0.0.1:9092"\nports = "9093-9099"\n'
UNWRAP = '[[listener]]\nname = "t"\ncluster = "b"\nlisten = "127.0.0.1:29092"\nports = "29093-29099"\nmode = "unwrap"\n'
WRAP = '[[listener]]\nname = "s"\ncluster = "a"\nlisten = "127.0.0.1:19092"\nports = "19093-19099"\nmode = "wrap"\n'


def completed(block: str) -> str:
    """With the clusters and listeners that it needs."""
    if block.startswith("[listener."):  # a table of the wrapping listener
        return "\n".join([*map(cluster, "ab"), UNWRAP, f'{WRAP}pair = "t"', block])
    found = tomllib.loads(block)
    listeners = found.get("listener", [])
    wanted = [listener["cluster"] for listener in listeners] or ["a"]
    there = [one["name"] for one in found.get("cluster", [])]
    more = [cluster(name) for name in dict.fromkeys(wanted) if name not in there]
    return "\n".join([block, *more, *([] if listeners else [PLAIN])])


def cluster(name: str) -> str:
    return CLUSTER.format(name=name)


@pytest.mark.parametrize(("guide", "block"), BLOCKS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(BLOCKS)])
def test_the_configuration_is_good(guide: str, block: str) -> None:
    text = block if guide == "security.md" else completed(block)
    assert read_config(text, Path("/etc/shoal/shoal.toml")).listeners


def test_there_are_some_in_these_guides() -> None:
    assert {"configuration.md", "security.md", "legacy.md"} <= {name for name, _ in BLOCKS}
