"""`shoal.toml` -> `Configuration`, validated once. Whatever is wrong is told all at once, each with its path in the file."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shoal.protocol.api import API
from shoal.proxy.config_checks import check_settings
from shoal.proxy.config_schema import (
    CaptureTable,
    ClusterTable,
    CoalescingTable,
    File,
    LegacyTable,
    ListenerTable,
    LogTable,
    RawCaptureTable,
    ShallowTable,
    keys_of,
    unknown_keys,
)
from shoal.proxy.logs import LogSettings
from shoal.proxy.operator_error import OperatorError, Problem
from shoal.proxy.settings import (
    Address,
    CaptureSettings,
    ClusterSettings,
    CoalesceSettings,
    Isolation,
    LegacySettings,
    Limits,
    ListenerSettings,
    Mode,
    MultiBatch,
    NodePorts,
    PortMap,
    PortRange,
    RawCaptureSettings,
    SetCompression,
    Settings,
    ShallowSettings,
)
from shoal.proxy.values import (
    CODECS,
    check_regex,
    check_topic,
    did_you_mean,
    listed,
    parse_address,
    parse_addresses,
    parse_ports,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Configuration", "load_config", "read_config"]

A = TypeVar("A")
B = TypeVar("B")

_EXPECTED = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_SIZES = re.compile(r"_bytes$|^run_limit$")
_NO_ADDRESS = Address("127.0.0.1", 1)  # stands in for one that could not be read: its error is already noted
_NO_BOOTSTRAP = (_NO_ADDRESS,)
_NO_PORTS: NodePorts = PortMap(ports={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    settings: Settings
    log: LogSettings = field(default_factory=LogSettings)


def load_config(path: Path) -> Configuration:
    """Raises `OperatorError` when the file cannot be read or says something wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OperatorError.of(str(path), f"cannot be read: {reason}; give the configuration with -c FILE") from None
    return read_config(text, path)


def read_config(text: str, path: Path) -> Configuration:
    """`path` names the file in errors; a relative `state-dir` is relative to it."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError.of(str(path), f"is not valid TOML: {error}") from None
    if problems := [_unknown(*found) for found in unknown_keys(raw)]:
        raise _in_file(path, problems)
    try:
        file = msgspec.convert(raw, File)
    except msgspec.ValidationError as error:
        raise _in_file(path, [_mistyped(str(error))]) from None
    reader = _Reader()
    configuration = reader.configuration(file, path.parent)
    problems = reader.problems or check_settings(configuration.settings, _where_in_toml)
    if problems:
        raise _in_file(path, problems)
    return configuration


def _in_file(path: Path, problems: list[Problem]) -> OperatorError:
    return OperatorError(tuple(Problem(f"{path}: {problem.where}", problem.what) for problem in problems))


def _unknown(path: str, key: str, table: type[Any]) -> Problem:
    known = keys_of(table)
    return Problem(f"{path}{key}", f"unknown key; {did_you_mean(key, known)}known keys here: {listed(known)}")


def _mistyped(error: str) -> Problem:
    match = _EXPECTED.match(error)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return Problem(f"{path}.{missing[1]}" if path else missing[1], _MISSING.get(missing[1], "is missing"))
    for name, plain in _TYPE_NAMES.items():
        what = what.replace(name, plain)
    return Problem(path, what[:1].lower() + what[1:])


_TYPE_NAMES = {
    " | null": "",
    "`": "",
    "object": "a table",
    "array": "an array",
    "str": "text",
    "int": "a number",
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


def _where_in_toml(index: int, key: str) -> str:
    return f"listener[{index}].{key}"


class _Reader:
    """Converts tables to settings and collects what is wrong on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def configuration(self, file: File, directory: Path) -> Configuration:
        state_dir = None if file.state_dir is None else directory / Path(file.state_dir).expanduser()
        tags = file.tags or {}
        settings = Settings(
            clusters=tuple(self._cluster(f"cluster[{index}]", table) for index, table in enumerate(file.cluster)),
            listeners=tuple(self._listener(f"listener[{i}]", t, state_dir, tags) for i, t in enumerate(file.listener)),
            tags=tags,
            limits=self._merge("limits", Limits(), file.limits),
            state_dir=state_dir,
        )
        if file.capture is not None:
            capture = self._capture(file.capture, directory)
            raw = (
                None if file.capture.raw is None else self._raw_capture(file.capture.raw, capture.directory, directory)
            )
            settings = dataclasses.replace(settings, capture=capture, raw_capture=raw)
        return Configuration(settings=settings, log=self._log(file.log))

    def _capture(self, table: CaptureTable, directory: Path) -> CaptureSettings:
        own = msgspec.structs.replace(table, raw=None)
        settings = self._merge("capture", CaptureSettings(directory=directory), own)
        return dataclasses.replace(settings, directory=directory / Path(table.directory).expanduser())

    def _raw_capture(self, table: RawCaptureTable, index: Path, directory: Path) -> RawCaptureSettings:
        """By default beside the index."""
        names = {api.name: key for key, api in API.items()}
        apis = [self._choice("capture.raw.apis", name, list(names), "Produce") for name in table.apis or ()]
        plain = msgspec.structs.replace(table, directory=None, topics=None, clients=None, apis=None)
        return dataclasses.replace(
            self._merge("capture.raw", RawCaptureSettings(directory=index), plain),
            directory=index if table.directory is None else directory / Path(table.directory).expanduser(),
            topics=frozenset(table.topics or ()),
            clients=frozenset(table.clients or ()),
            apis=frozenset(names[name] for name in apis),
        )

    def _cluster(self, path: str, table: ClusterTable) -> ClusterSettings:
        multi_batch = self._choice(f"{path}.multi-batch", table.multi_batch, [one.value for one in MultiBatch], "auto")
        topic = table.probe_topic
        return ClusterSettings(
            name=table.name,
            bootstrap=self._value(f"{path}.bootstrap", parse_addresses, table.bootstrap, _NO_BOOTSTRAP),
            multi_batch=MultiBatch(multi_batch),
            probe_topic=None if topic is None else self._value(f"{path}.probe-topic", check_topic, topic, topic),
        )

    def _listener(
        self, path: str, table: ListenerTable, state_dir: Path | None, tags: Mapping[str, str]
    ) -> ListenerSettings:
        address = self._value(f"{path}.listen", parse_address, table.listen, _NO_ADDRESS)
        ports = self._value(f"{path}.ports", parse_ports, table.ports, _NO_PORTS)
        if isinstance(ports, PortRange) and state_dir is not None:
            ports = dataclasses.replace(ports, state_file=state_dir / f"{table.name}.json")
        mode = self._choice(f"{path}.mode", table.mode, [mode.value for mode in Mode], Mode.PLAIN.value)
        if table.mode == Mode.PLAIN and table.shallow is not None:
            self.problems.append(Problem(f"{path}.shallow", 'needs mode = "wrap" or mode = "unwrap"'))
        if table.coalescing is not None and not table.coalesce:
            self.problems.append(Problem(f"{path}.coalescing", "needs coalesce = true"))
        if table.legacy_options is not None and not table.legacy:
            self.problems.append(Problem(f"{path}.legacy-options", "needs legacy = true"))
        settings = ListenerSettings(
            name=table.name,
            cluster=table.cluster,
            host=address.host,
            port=address.port,
            advertised_host=table.advertise,
            nodes=ports,
            mode=Mode(mode),
            pair=table.pair,
            shallow=self._shallow(f"{path}.shallow", table.shallow or ShallowTable(), tags),
            coalesce=table.coalesce,
            coalescing=self._merge(f"{path}.coalescing", CoalesceSettings(), table.coalescing or CoalescingTable()),
            legacy=table.legacy,
            legacy_options=self._legacy(f"{path}.legacy-options", table.legacy_options or LegacyTable()),
            producers_file=state_dir / f"{table.name}.producers" if state_dir and mode == Mode.UNWRAP else None,
        )
        return (
            settings
            if table.max_connections is None
            else dataclasses.replace(settings, max_connections=table.max_connections)
        )

    def _shallow(self, path: str, table: ShallowTable, tags: Mapping[str, str]) -> ShallowSettings:
        for pattern in table.deep_topics or []:
            self._value(f"{path}.deep-topics", check_regex, pattern, pattern)
        self._value(f"{path}.mirror-clients", check_regex, table.mirror_clients or "", "")
        if table.plain_compression is not None:
            self._choice(f"{path}.plain-compression", table.plain_compression, list(CODECS), "zstd")
        settings = self._merge(path, ShallowSettings(), table)
        if table.partition_max_bytes is None:  # runs cannot become longer than what one fetch brings
            settings = dataclasses.replace(
                settings, partition_max_bytes=max(settings.partition_max_bytes, settings.run_limit)
            )
        if table.fetch_max_bytes is None:
            settings = dataclasses.replace(settings, fetch_max_bytes=max(settings.fetch_max_bytes, settings.run_limit))
        return dataclasses.replace(settings, tags={**tags, **settings.tags})

    def _legacy(self, path: str, table: LegacyTable) -> LegacySettings:
        defaults = LegacySettings()
        compression = table.compression or defaults.compression.value
        isolation = table.isolation or defaults.isolation.value
        return dataclasses.replace(
            self._merge(path, defaults, msgspec.structs.replace(table, compression=None, isolation=None)),
            compression=SetCompression(
                self._choice(f"{path}.compression", compression, [one.value for one in SetCompression], "source")
            ),
            isolation=Isolation(
                self._choice(f"{path}.isolation", isolation, [one.value for one in Isolation], "read-committed")
            ),
        )

    def _log(self, table: LogTable) -> LogSettings:
        if not table.report_every >= 0:
            self.problems.append(Problem("log.report-every", f"{table.report_every} is too small: 0 means never"))
        return LogSettings(
            level=self._choice("log.level", table.level, ["debug", "info", "warning", "error"], "info"),
            format=self._choice("log.format", table.format, ["human", "json"], "human"),
            report_every=table.report_every,
        )

    def _merge(self, path: str, defaults: A, table: msgspec.Struct) -> A:
        """`defaults` with every field that the table writes; sizes may be written with a unit, lists become tuples."""
        written: dict[str, Any] = {}
        for name in table.__struct_fields__:
            value = getattr(table, name)
            if value is None:
                continue
            if _SIZES.search(name):
                value = self._value(f"{path}.{name.replace('_', '-')}", parse_size, value, 1)
            written[name] = tuple(value) if isinstance(value, list) else value
        return dataclasses.replace(defaults, **written)  # type: ignore[type-var]

    def _value(self, path: str, parse: Callable[[A], B], value: A, otherwise: B) -> B:
        try:
            return parse(value)
        except ValueError as error:
            self.problems.append(Problem(path, str(error)))
            return otherwise

    def _choice(self, path: str, value: str, known: list[str], otherwise: str) -> str:
        if value in known:
            return value
        what = f'"{value}" is not known; {did_you_mean(value, known)}write one of: {listed(known)}'
        self.problems.append(Problem(path, what))
        return otherwise
