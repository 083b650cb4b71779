"""/config: the settings in effect, flags included, with the keys of shoal.toml, and never a secret.

Settings hold no secret: they name the file or the environment variable that does (`config.secret`). The exceptions are
free texts in which an operator may have written one nevertheless; `_MASKED` hides these parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from shoal.protocol.schema.api import API
from shoal.proxy.config.schema import keys_of
from shoal.proxy.config.secret import MASK, shown_url
from shoal.proxy.config.settings import Address, ListenerSettings, PortMap, PortRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.config.settings import Settings

__all__ = ["MASK", "effective"]


def _command(command: tuple[str, ...]) -> list[str]:
    return [MASK if index else argument for index, argument in enumerate(command)]


def _values(table: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(table, MASK)


_MASKED: Mapping[str, Callable[[Any], object]] = {
    "token-command": _command,
    "token-endpoint": shown_url,
    "jwks-endpoint": shown_url,
    "extensions": _values,
}


def effective(settings: Settings) -> dict[str, object]:
    """As JSON values. A key that is absent is not set."""
    found = _table(settings)
    if settings.raw_capture is not None:
        found["capture"] = {**_as_table(found.get("capture")), "raw": _table(settings.raw_capture)}
    return found


def _as_table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _table(value: Any) -> dict[str, object]:
    found = {}
    for name, key in keys_of(type(value)).items():
        item = getattr(value, key.field, None)
        if name == "listen" and isinstance(value, ListenerSettings):
            item = Address(value.host, value.port)
        if item is not None:
            mask = _MASKED.get(name)
            found[name] = _plain(item if mask is None else mask(item), name)
    return found


def _plain(value: Any, name: str) -> object:
    if isinstance(value, PortRange):
        return f"{value.first}-{value.last}"
    if isinstance(value, PortMap):
        return {str(node): port for node, port in value.ports.items()}
    if dataclasses.is_dataclass(value):
        return _table(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if isinstance(value, (tuple, list, frozenset)) and not isinstance(value, Address):
        items = [_plain(item, name) for item in value]
        return sorted(map(str, items)) if isinstance(value, frozenset) else items
    if name == "apis":
        return API[value].name
    return value if isinstance(value, (bool, int, float, str)) else str(value)
