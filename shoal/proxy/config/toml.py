"""`shoal.toml` -> `Settings`, validated once. All problems are reported together, each with its path in the file."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shoal.command_line import did_you_mean, listed
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.rules.consistency import check_settings
from shoal.proxy.config.schema import form_of, is_table, item_of, keys_of, tables
from shoal.proxy.config.security import Routing, Secret
from shoal.proxy.config.settings import (
    Address,
    ListenerSettings,
    Mode,
    NodePorts,
    RawCaptureSettings,
    Settings,
    ShallowSettings,
    Size,
    Tags,
    WorkerCount,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["load_config", "read_config", "where_in_toml"]

T = TypeVar("T")


def load_config(path: Path) -> Settings:
    """Raises `OperatorError` if the file cannot be read or is invalid."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OperatorError.of(str(path), f"cannot be read: {reason}") from None
    return read_config(text, path)


def read_config(text: str, path: Path) -> Settings:
    """`path` names the file in errors; a relative directory is relative to it."""
    try:
        file = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError.of(str(path), f"is not valid TOML: {error}{_toml_hint(text, str(error))}") from None
    except RecursionError:
        raise OperatorError.of(str(path), "is not valid TOML: it is nested too deeply") from None
    reader = _Reader(path.parent)
    settings, raw_capture = reader.table("", file, Settings), reader.raw_capture(file.get("capture"))
    if problems := reader.unknown or reader.problems:
        raise _in_file(path, problems)
    assert settings is not None
    settings = _complete(dataclasses.replace(settings, raw_capture=raw_capture))
    if problems := [*_needs(file["listener"], settings.listeners)] or check_settings(settings, where_in_toml):
        raise _in_file(path, problems)
    return settings


def _toml_hint(text: str, error: str) -> str:
    if error.startswith("Cannot overwrite a value") and (single := _SINGLE.search(text)):
        return f": write [[{single[1]}]] with two brackets, once for each {single[1]}"
    return ": text needs quotes" if error.startswith("Invalid value") else ""


_SINGLE = re.compile(r"^\s*\[(cluster|listener)\]", re.MULTILINE)


def _in_file(path: Path, problems: Iterable[Problem]) -> OperatorError:
    return OperatorError(tuple(Problem(f"{path}: {problem.where}", problem.what) for problem in problems))


def where_in_toml(index: int, key: str) -> str:
    return f"listener[{index}].{key}"


def _complete(settings: Settings) -> Settings:
    """Adds the top-level values to every listener."""
    listeners = tuple(
        dataclasses.replace(
            listener, shallow=dataclasses.replace(listener.shallow, tags={**settings.tags, **listener.shallow.tags})
        )
        for listener in settings.listeners
    )
    return dataclasses.replace(settings, listeners=listeners).with_state_files()


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
                yield Problem(where_in_toml(index, key), what)
        yield from _without_effect(index, table, listener.mode)
        yield from _without_clients(index, table)


def _without_effect(index: int, table: Mapping[str, object], mode: Mode) -> Iterator[Problem]:
    shallow = table.get("shallow", {})
    for key in shallow if isinstance(shallow, dict) and mode is not Mode.PLAIN else ():
        if mode is not (used_by := Mode.UNWRAP if key in _OF_UNWRAP else Mode.WRAP):
            what = f'has no effect with mode = "{mode}": move it to the listener with mode = "{used_by}"'
            yield Problem(where_in_toml(index, f"shallow.{key}"), what)


def _without_clients(index: int, table: Mapping[str, object]) -> Iterator[Problem]:
    access = table.get("access", {})
    for key, value in access.items() if isinstance(access, dict) else ():
        if value == []:
            what = "is empty, which would let in every client: name those that may connect, or remove the key"
            yield Problem(where_in_toml(index, f"access.{key}"), what)
    if table.get("principals") == {}:
        what = "is empty, and then it would let in every client, with [cluster.sasl]: name some, or remove the table"
        yield Problem(where_in_toml(index, "principals"), what)


_OF_UNWRAP = ("producer-slots", "plain-compression")  # the other keys of [listener.shallow] are for wrap


class _Reader:
    """Converts tables to settings and collects problems. An invalid value becomes None."""

    def __init__(self, directory: Path) -> None:
        self.unknown: list[Problem] = []
        self.problems: list[Problem] = []
        self._directory = directory

    def table(self, path: str, table: Mapping[str, object], settings: type[T]) -> T | None:
        keys, prefix = keys_of(settings), f"{path}." if path else ""
        self.unknown += [_unknown(f"{prefix}{key}", key, keys, settings) for key in table if key not in keys]
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
            raw = {"directory": beside if isinstance(beside, str) else "."} | raw
        settings: RawCaptureSettings | None = self._value("capture.raw", raw, RawCaptureSettings)
        return settings

    def _value(self, path: str, written: object, kind: Any) -> Any:
        form = form_of(kind)
        try:
            value = msgspec.convert(written, form.written)
            if isinstance(value, str) and "\0" in value:
                raise ValueError("has a NUL character: remove it")  # no path, name or address has one
            if is_table(kind):
                return self.table(path, value, kind)
            if item := item_of(kind):
                places = [f"{path}[{index}]" if is_table(item) else path for index in range(len(value))]
                return form.parse(map(self._value, places, value, repeat(item)))
            value = form.parse(value)
        except msgspec.ValidationError as error:
            self.problems.append(_mistyped(path, str(error), written, kind))
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


def _unknown(path: str, key: str, known: Iterable[str], settings: type) -> Problem:
    """A key of another table is often in the wrong place: the table is missing, or one with a key after it."""
    written, hint = key.replace("_", "-"), did_you_mean(key, known)
    owners = [title for title, table in tables() if table is not settings and written in keys_of(table)]
    if not owners:  # log-level, as the flag is called
        outer, _, inner = written.partition("-")
        owners = [title for title, table in tables() if title == f"[{outer}]" and inner in keys_of(table)]
        written = inner if owners else written
    if owners and f'"{written}"' not in hint:
        hint = f"{written} is a key of {' and '.join(owners[:3])}; "
    return Problem(path, f"unknown key; {hint}known keys here: {listed(known)}")


def _mistyped(path: str, error: str, written: object, kind: Any) -> Problem:
    match = _EXPECTED.match(error)
    assert match is not None
    what, place = match["what"], match["path"] or ""
    for name, plain in _TYPE_NAMES.items():
        what = what.replace(name, plain)
    if place == "[...]" and isinstance(written, dict):
        place = f".{_wrong_key(written, form_of(kind).written)}"
    example = _EXAMPLES.get(kind) or _table_example(path, kind)
    return Problem(f"{path}{place}", what[:1].lower() + what[1:] + (f": write {example}" if example else ""))


def _table_example(path: str, kind: Any) -> str:
    title = re.sub(r"\[\d+\]", "", path)
    if is_table(item_of(kind)):
        return f"[[{title}]] with two brackets"
    return f"a table: [{title}]" if is_table(kind) else ""


def _wrong_key(table: dict[str, object], form: Any) -> str:
    """msgspec does not name the key of a wrong value."""
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, form)
        except msgspec.ValidationError:
            return key
    return "?"


_EXAMPLES: Mapping[Any, str] = {
    NodePorts: 'a range such as "19093-19192", or a port for each node id, such as { 1 = 19093 }',
    Tags: 'text in quotes, such as { team = "a" }',
    Address: 'host:port, such as "127.0.0.1:19092"',
    tuple[Address, ...]: 'host:port, such as "kafka-1:9092,kafka-2:9092"',
    WorkerCount: 'a number without quotes, or "auto"',
    Size: 'bytes, or a size such as "8MiB"',
    Secret: '{ file = "/path/of/it" } or { env = "NAME_OF_VARIABLE" }; a secret is never in this file',
    bool: "true or false, without quotes",
    int: "a number without quotes",
    float: "a number without quotes",
}


_EXPECTED = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_TYPE_NAMES = {
    "`": "",
    " | ": " or ",
    "object": "a table",
    "Expected bool": "Expected true or false",
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
