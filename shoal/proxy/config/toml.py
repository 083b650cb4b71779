"""`shoal.toml` -> `Settings`, validated once. All problems are reported together, each with its path in the file."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shoal.proxy.config.checks import check_settings
from shoal.proxy.config.parse import did_you_mean, listed
from shoal.proxy.config.schema import form_of, is_table, item_of, keys_of
from shoal.proxy.config.security import Routing
from shoal.proxy.config.settings import (
    Address,
    ListenerSettings,
    Mode,
    PortRange,
    RawCaptureSettings,
    Settings,
    ShallowSettings,
)
from shoal.proxy.errors import OperatorError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["load_config", "read_config"]

T = TypeVar("T")


def load_config(path: Path) -> Settings:
    """Raises `OperatorError` if the file cannot be read or is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OperatorError.of(str(path), f"cannot be read: {reason}; give the configuration with -c FILE") from None
    return read_config(text, path)


def read_config(text: str, path: Path) -> Settings:
    """`path` names the file in errors; a relative directory is relative to it."""
    try:
        file = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError.of(str(path), f"is not valid TOML: {error}") from None
    reader = _Reader(path.parent)
    settings, raw_capture = reader.table("", file, Settings), reader.raw_capture(file.get("capture"))
    if problems := reader.unknown or reader.problems:
        raise _in_file(path, problems)
    assert settings is not None
    settings = _complete(dataclasses.replace(settings, raw_capture=raw_capture))
    if problems := [*_needs(file["listener"], settings.listeners)] or check_settings(settings, _where_in_toml):
        raise _in_file(path, problems)
    return settings


def _in_file(path: Path, problems: Iterable[Problem]) -> OperatorError:
    return OperatorError(tuple(Problem(f"{path}: {problem.where}", problem.what) for problem in problems))


def _where_in_toml(index: int, key: str) -> str:
    return f"listener[{index}].{key}"


def _complete(settings: Settings) -> Settings:
    """Adds the top-level values to every listener."""
    return dataclasses.replace(
        settings, listeners=tuple(_listener(listener, settings) for listener in settings.listeners)
    )


def _listener(listener: ListenerSettings, settings: Settings) -> ListenerSettings:
    nodes, producers_file = listener.nodes, None
    if settings.state_dir is not None:
        if isinstance(nodes, PortRange):
            nodes = dataclasses.replace(nodes, state_file=settings.state_dir / f"{listener.name}.json")
        if listener.mode is Mode.UNWRAP:
            producers_file = settings.state_dir / f"{listener.name}.producers"
    shallow = dataclasses.replace(listener.shallow, tags={**settings.tags, **listener.shallow.tags})
    return dataclasses.replace(listener, nodes=nodes, producers_file=producers_file, shallow=shallow)


# A table of a listener that has no effect without another key.
_NEEDED: Mapping[str, tuple[Callable[[ListenerSettings], bool], str]] = {
    "shallow": (lambda listener: listener.mode is not Mode.PLAIN, 'needs mode = "wrap" or mode = "unwrap"'),
    "coalescing": (lambda listener: listener.coalesce, "needs coalesce = true"),
    "legacy-options": (lambda listener: listener.legacy, "needs legacy = true"),
}


def _needs(tables: list[Mapping[str, object]], listeners: Iterable[ListenerSettings]) -> Iterator[Problem]:
    for index, (table, listener) in enumerate(zip(tables, listeners, strict=True)):
        for key, (has, what) in _NEEDED.items():
            if key in table and not has(listener):
                yield Problem(_where_in_toml(index, key), what)


class _Reader:
    """Converts tables to settings and collects problems. An invalid value becomes None."""

    def __init__(self, directory: Path) -> None:
        self.unknown: list[Problem] = []
        self.problems: list[Problem] = []
        self._directory = directory

    def table(self, path: str, table: Mapping[str, object], settings: type[T]) -> T | None:
        keys, prefix = keys_of(settings), f"{path}." if path else ""
        self.unknown += [_unknown(f"{prefix}{key}", key, keys) for key in table if key not in keys]
        values = {}
        for name, key in keys.items():
            if name in table and key.kind is not None:
                values[key.field] = self._value(f"{prefix}{name}", table[name], key.kind)
            elif key.required and not (name == "ports" and _needs_no_ports(table)):
                values[key.field] = None
                self.problems.append(Problem(f"{prefix}{name}", _MISSING.get(name, "is missing")))
        make: Callable[..., T] = _MADE.get(settings, settings)
        return None if None in values.values() else make(**values)

    def raw_capture(self, capture: object) -> RawCaptureSettings | None:
        """The default directory is that of the index."""
        if not isinstance(capture, dict) or "raw" not in capture:
            return None
        raw, beside = capture["raw"], capture.get("directory")
        if isinstance(raw, dict):
            raw = {"directory": beside if isinstance(beside, str) else ""} | raw
        settings: RawCaptureSettings | None = self._value("capture.raw", raw, RawCaptureSettings)
        return settings

    def _value(self, path: str, written: object, kind: Any) -> Any:
        form = form_of(kind)
        try:
            value = msgspec.convert(written, form.written)
            if is_table(kind):
                return self.table(path, value, kind)
            if item := item_of(kind):
                places = [f"{path}[{index}]" if is_table(item) else path for index in range(len(value))]
                return form.parse(map(self._value, places, value, repeat(item)))
            value = form.parse(value)
        except msgspec.ValidationError as error:
            self.problems.append(_mistyped(path, str(error)))
            return None
        except ValueError as error:
            self.problems.append(Problem(path, str(error)))
            return None
        return self._directory / value if isinstance(value, Path) else value


def _needs_no_ports(listener: Mapping[str, object]) -> bool:
    return listener.get("routing") == Routing.SNI


def _listener_at(host: Address, **values: Any) -> ListenerSettings:
    return ListenerSettings(host=host.host, port=host.port, **values)


_MADE: Mapping[type, Callable[..., Any]] = {ListenerSettings: _listener_at, ShallowSettings: ShallowSettings.of}


def _unknown(path: str, key: str, known: Iterable[str]) -> Problem:
    return Problem(path, f"unknown key; {did_you_mean(key, known)}known keys here: {listed(known)}")


def _mistyped(path: str, error: str) -> Problem:
    match = _EXPECTED.match(error)
    assert match is not None
    what = match["what"]
    for name, plain in _TYPE_NAMES.items():
        what = what.replace(name, plain)
    return Problem(f"{path}{match['path'] or ''}", what[:1].lower() + what[1:])


_EXPECTED = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_TYPE_NAMES = {
    "`": "",
    "object": "a table",
    "array": "an array",
    "str": "text",
    "int": "an integer",
    "float": "a number",
}


_MISSING = {
    "cluster": "is missing: write a [[cluster]] table with name and bootstrap",
    "listener": "is missing: write a [[listener]] table with name, cluster, listen and ports",
    "name": 'is missing: give it a name, for example name = "source"',
    "bootstrap": 'is missing: write the brokers to connect to, for example bootstrap = "kafka-1:9092,kafka-2:9092"',
    "listen": 'is missing: write where clients connect to, for example listen = "127.0.0.1:19092"',
    "ports": 'is missing: write the ports for the brokers, for example ports = "19093-19192" or ports = { 1 = 19093 }',
}
