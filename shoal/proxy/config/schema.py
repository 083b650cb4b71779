"""The written form of settings, in `shoal.toml` and in flags: a key for each field of the classes in `settings.py`.

A key is the field's name with hyphens. Its form follows from the field's type. A missing key has the field's default.
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from shoal.command_line import did_you_mean, listed
from shoal.protocol.schema.api import API
from shoal.proxy.config.parse import (
    check_regex,
    check_topic,
    parse_address,
    parse_addresses,
    parse_host,
    parse_network,
    parse_path,
    parse_ports,
    parse_size,
    parse_workers,
)
from shoal.proxy.config.security import File, Network
from shoal.proxy.config.settings import (
    Address,
    ApiKey,
    CaptureSettings,
    Directory,
    HostName,
    NodePorts,
    RawCaptureSettings,
    Regex,
    Settings,
    Size,
    Tags,
    TopicName,
    WorkerCount,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["ConfigKey", "ValueFormat", "choices_of", "form_of", "is_table", "item_of", "key_of", "keys_of", "tables"]


class ValueFormat(NamedTuple):
    written: Any  # the type in TOML
    parse: Callable[[Any], Any]  # raises ValueError


class ConfigKey(NamedTuple):
    field: str
    kind: Any  # its type, without None; None: another class holds it
    required: bool


_FORMS: Mapping[Any, ValueFormat] = {
    Size: ValueFormat(int | str, parse_size),
    Regex: ValueFormat(str, check_regex),
    TopicName: ValueFormat(str, check_topic),
    WorkerCount: ValueFormat(int | str, parse_workers),
    HostName: ValueFormat(str, parse_host),
    Directory: ValueFormat(str, parse_path),
    Tags: ValueFormat(dict[str, str], dict),
    Address: ValueFormat(str, parse_address),
    tuple[Address, ...]: ValueFormat(str | list[str], parse_addresses),
    NodePorts: ValueFormat(str | dict[str, int], parse_ports),
    File: ValueFormat(str, parse_path),
    Network: ValueFormat(str, parse_network),
}

# Fields whose key has another name; None: computed from other keys.
_KEYS = {
    "clusters": "cluster",
    "listeners": "listener",
    "host": "listen",
    "port": None,
    "nodes": "ports",
    "advertised_host": "advertise",
    "advertised_port": "advertise-port",
    "producers_file": None,
    "mirrored_file": None,
    "raw_capture": None,
}
_KINDS: Mapping[str, Any] = {"host": Address}
_REQUIRED = {"host", "nodes"}
_FURTHER: Mapping[type, dict[str, ConfigKey]] = {
    CaptureSettings: {"raw": ConfigKey("raw_capture", None, required=False)}
}

_hints = cache(partial(get_type_hints, include_extras=True))


def keys_of(settings: type) -> Mapping[str, ConfigKey]:
    """The keys of the TOML table for `settings`, in the order of the fields."""
    keys = {}
    for field in dataclasses.fields(settings):
        if name := _KEYS.get(field.name, field.name.replace("_", "-")):
            kind = _KINDS.get(field.name) or _without_none(_hints(settings)[field.name])
            has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            keys[name] = ConfigKey(field.name, kind, not has_default or field.name in _REQUIRED)
    return keys | _FURTHER.get(settings, {})


def key_of(field: str) -> str:
    """The key of a field, for messages; a computed field has its own name."""
    return _SHOWN.get(field) or _KEYS.get(field) or field.replace("_", "-")


_SHOWN = {"port": "listen", "raw_capture": "capture.raw"}


@cache
def tables() -> tuple[tuple[str, type], ...]:
    """Every table of the file: (its title, such as `[listener.tls]`, the settings)."""
    return tuple(_tables("", Settings))


def _tables(path: str, settings: type) -> Iterator[tuple[str, type]]:
    for name, key in keys_of(settings).items():
        table = RawCaptureSettings if key.kind is None else item_of(key.kind) or key.kind
        if is_table(table):
            inner = f"{path}.{name}" if path else name
            yield (f"[[{inner}]]" if item_of(key.kind) else f"[{inner}]"), table
            yield from _tables(inner, table)


def _without_none(kind: Any) -> Any:
    several = [part for part in get_args(kind) if part is not type(None)]
    return several[0] if type(None) in get_args(kind) else kind


def choices_of(kind: Any) -> Mapping[str, Any]:
    """The permitted words, each with its value; empty if the type is not a choice."""
    if kind is ApiKey:
        return {api.name: key for key, api in API.items()}
    if get_origin(kind) is Literal:
        return {word: word for word in get_args(kind)}
    return {member.value: member for member in kind} if isinstance(kind, type) and issubclass(kind, StrEnum) else {}


def item_of(kind: Any) -> Any:
    """The element type of an array; None if it is not an array."""
    return get_args(kind)[0] if get_origin(kind) in (tuple, frozenset) and kind not in _FORMS else None


def is_table(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def form_of(kind: Any) -> ValueFormat:
    """The form of one value. Elements of an array and keys of a table have their own forms."""
    if is_table(kind):
        return ValueFormat(dict[str, Any], dict)
    if item := item_of(kind):
        return ValueFormat(list[form_of(item).written], get_origin(kind))  # type: ignore[misc]
    if known := choices_of(kind):
        return ValueFormat(str, partial(_chosen, known))
    return _FORMS.get(kind) or ValueFormat(kind, kind)


def _chosen(known: Mapping[str, Any], word: str) -> Any:
    if word not in known:
        raise ValueError(f'unknown value "{word}"; {did_you_mean(word, known)}write one of: {listed(known)}')
    return known[word]
