"""The state file of a listener's ports: a broker keeps its port across restarts of Shoal.

It also has each broker's address. So a client with cached metadata can reconnect to a broker's port and reach that
broker right after a start of Shoal, before Shoal has read any metadata.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.cluster.ports import SavedPorts
from shoal.proxy.cluster.state_files import NotOurs, set_aside, unreadable, write_lines
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, PortRange
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from shoal.proxy.cluster.ports import Nodes
    from shoal.proxy.config.settings import NodePorts
    from shoal.proxy.events.logs import Complain

__all__ = ["CorruptState", "PortsFile", "read_state", "write_state"]

log = logging.getLogger("shoal.listener")

_STATE_VERSION = 2
_READABLE = (1, _STATE_VERSION)  # 1 had no cluster
_BEGINNING = '{\n "version": '  # of every state file that Shoal writes


class CorruptState(Exception):
    """A state file of Shoal that cannot be used; the message says why."""


class PortsFile:
    """The file of the listener `name`; there is none if the operator has chosen each port, or no state directory.

    `is_ours` False: another process writes it. `failed` counts what could not be written.
    """

    def __init__(self, name: str, *, is_ours: bool, complain: Complain, failed: Callable[[], None]) -> None:
        self._name = name
        self._is_ours = is_ours
        self._complain = complain
        self._failed = failed
        self.is_frozen = False  # another Shoal takes over
        self._is_behind = False

    def freeze(self, *, frozen: bool) -> bool:
        """While another Shoal takes over, the file is its own. -> whether it must be saved now."""
        self.is_frozen = frozen
        return self._is_behind and not frozen

    def load(self, ports: NodePorts) -> SavedPorts:
        """Raises OperatorError."""
        path, name = _path(ports), self._name
        if path is None:
            return SavedPorts({})
        try:
            state = read_state(path, name)
        except NotOurs as error:
            raise OperatorError.of(f"listener {name!r}", str(error)) from error
        except CorruptState as error:
            try:
                self._discard(path, str(error))
            except OSError as failure:
                what = f"{path} cannot be used ({error}) and cannot be renamed: {failure.strerror}: remove it"
                raise OperatorError.of(f"listener {name!r}", what) from failure
            return SavedPorts({})
        except OSError as error:
            raise OperatorError.of(f"listener {name!r}", unreadable(path, error)) from error
        if state.nodes:
            text = f"listener {name!r}: loaded {path}: brokers keep their ports"
            log.info("ports-file-loaded", extra=event(text, listener=name, file=str(path)))
        return state

    def save(self, ports: NodePorts, saved: SavedPorts) -> None:
        self._is_behind = self.is_frozen
        path = self._writable(ports)
        if path is None:
            return
        try:
            write_state(path, self._name, saved.nodes, saved.cluster)
        except OSError as error:
            self._failed()
            self._complain(
                "ports-file-not-written",
                f"cannot write {path} ({error.strerror}): Shoal goes on, and brokers may get other "
                "ports after a restart. Make room, or choose another state-dir, and restart Shoal",
                file=str(path),
                error=error.strerror,
            )

    def discard(self, ports: NodePorts, why: str) -> None:
        """If it cannot be renamed, it is overwritten: the file is Shoal's."""
        path = self._writable(ports)
        if path is not None:
            with suppress(OSError):
                self._discard(path, why)

    def _writable(self, ports: NodePorts) -> Path | None:
        return _path(ports) if self._is_ours and not self.is_frozen else None

    def _discard(self, path: Path, why: str) -> None:
        """Raises OSError."""
        aside = set_aside(path)
        text = f"listener {self._name!r}: discarded {path} ({why}), kept as {aside.name}: brokers may get other ports"
        values = event(text, listener=self._name, file=str(path), kept_as=aside.name, error=why)
        log.warning("ports-file-discarded", extra=values)


def _path(ports: NodePorts) -> Path | None:
    return ports.state_file if isinstance(ports, PortRange) else None


def read_state(path: Path, listener: str) -> SavedPorts:
    """The state from `write_state`; empty if there is no such file. Raises NotOurs, CorruptState, or OSError."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return SavedPorts({})
    try:
        state = json.loads(text)
        version, owner = state["version"], state["listener"]
    except (ValueError, KeyError, TypeError) as error:
        if text and not text.startswith(_BEGINNING):
            raise NotOurs(path, f"a state file of listener {listener!r}") from None
        raise CorruptState(f"it is not whole: {error}" if text else "it is empty") from None
    if owner != listener:
        raise NotOurs(path, f"a state file of listener {listener!r}, but of {owner!r}")
    if version not in _READABLE:
        raise CorruptState(f"it is of version {version!r}, and this Shoal writes {_STATE_VERSION}")
    try:
        cluster = state.get("cluster")
        return SavedPorts(dict(_parse(state)), cluster if isinstance(cluster, str) else None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"it is damaged: {error}") from None


def _parse(state: Mapping[str, object]) -> Iterator[tuple[int, tuple[int, Address | None]]]:
    nodes = state["nodes"]
    if not isinstance(nodes, dict):
        raise ValueError("nodes is not a table")
    seen: set[int] = set()
    for node_id, node in nodes.items():
        port, host, upstream_port = node["port"], node["host"], node["upstream_port"]
        if not (
            isinstance(port, int) and 0 < port < 65536 and isinstance(host, str) and isinstance(upstream_port, int)
        ):
            raise ValueError(f"node {node_id} is {node!r}")
        if port in seen:
            raise ValueError(f"two nodes have port {port}")
        seen.add(port)
        yield int(node_id), (port, Address(host, upstream_port) if host else None)


def write_state(path: Path, listener: str, nodes: Nodes, cluster: str | None = None) -> None:
    """Replace the file atomically. Raises OSError."""
    state = {
        "version": _STATE_VERSION,
        "listener": listener,
        "cluster": cluster,
        "nodes": {
            str(node_id): {
                "port": port,
                "host": address.host if address else "",
                "upstream_port": address.port if address else 0,
            }
            for node_id, (port, address) in sorted(nodes.items())
        },
    }
    write_lines(path, [json.dumps(state, indent=1)])
