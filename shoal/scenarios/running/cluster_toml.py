"""TLS and SASL of a cluster as lines of shoal.toml, for a Shoal that a run starts. Secrets stay in their files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.proxy.config.settings import ClusterSettings

__all__ = ["security_lines"]


def security_lines(settings: ClusterSettings) -> str:
    """Lines after those of a [[cluster]] table; empty without TLS and SASL."""
    tables = {"tls": settings.tls, "sasl": settings.sasl}
    return "".join(f"[cluster.{name}]\n{_lines(table)}" for name, table in tables.items() if table is not None)


def _lines(table: Any) -> str:
    return "".join(f"{key} = {value}\n" for key, value in _written(table))


def _written(table: Any) -> list[tuple[str, str]]:
    """The keys that differ from their defaults."""
    return [
        (field.name.replace("_", "-"), _value(value))
        for field in fields(table)
        if (value := getattr(table, field.name)) is not None and (field.default is MISSING or value != field.default)
    ]


def _value(value: Any) -> str:
    if is_dataclass(value):
        return _inline(_written(value))
    if isinstance(value, Mapping):
        return _inline([(_text(name), _value(item)) for name, item in value.items()])
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str | Path):
        return _text(str(value.absolute()) if isinstance(value, Path) else value)
    return json.dumps(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _inline(pairs: list[tuple[str, str]]) -> str:
    return f"{{ {', '.join(f'{name} = {value}' for name, value in pairs)} }}"
