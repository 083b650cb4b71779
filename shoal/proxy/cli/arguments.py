"""The command line of `shoal`: the argparse parsers. `main.py` runs the commands."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from shoal.proxy.cli.mm2_lines import FORMS
from shoal.proxy.cli.probe_arguments import PROBE_END, PROBE_USAGE, PROBE_WHAT, add_probe_options
from shoal.proxy.config.identity import shoal_version
from shoal.proxy.config.parse import did_you_mean, parse_address, parse_addresses, parse_ports
from shoal.proxy.config.schema import choices_of, form_of, item_of, keys_of
from shoal.proxy.config.settings import (
    KIB,
    MAX_PRODUCER_SLOTS,
    Address,
    ClusterSettings,
    Limits,
    LogSettings,
    ShallowSettings,
    Size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["NO_OTHERS", "build_parser", "parse_arguments", "written"]

T = TypeVar("T")

_WIDTH = 124
NO_OTHERS: Mapping[str, str] = MappingProxyType({})

_TOP = """\
Shoal is a proxy between a stock MirrorMaker 2 and stock brokers. It mirrors
whole compressed batches, so the mirror neither decompresses nor compresses
records.

  source brokers <-- fetch --- [ Shoal: wrap ] <--- consumer \\
                                     |                        MirrorMaker 2
  target brokers <-- produce - [ Shoal: unwrap ] <- producer /
"""
_TOP_END = """\
first steps:
  1. start Shoal; it prints the MirrorMaker settings:
     shoal mirror --source a1:9092 --target b1:9092
  2. see what else must change:
     shoal check mm2.properties
  3. start MirrorMaker 2 and watch Shoal's traffic summaries

exit codes: 0 done, 1 check: something must change,
            2 wrong arguments or configuration, 3 error in Shoal itself,
            4 the event loop was blocked (--stall-exit)
            (probe has more: shoal probe --help)
"""
_MIRROR_END = """\
what happens:
  Shoal listens on one port for the source cluster and one for the target
  cluster, plus one port per broker (--source-ports, --target-ports). It prints
  the MirrorMaker settings, then traffic summaries, until SIGTERM or Ctrl-C.
  It wraps nothing until records sent to the mirror come back through the target
  listener. If wired wrongly, the mirror mirrors as before, and Shoal logs why.

examples:
  shoal mirror --source kafka-a:9092 --target kafka-b:9092
  shoal mirror --source a1:9092,a2:9092 --target b1:9092 \\
               --source-listen 0.0.0.0:19092 --target-listen 0.0.0.0:29092 \\
               --advertise shoal.example
  # a topic read by a transform
  shoal mirror --source a1:9092 --target b1:9092 --deep-topics '^audit$'
  # only the settings, for Strimzi
  shoal mirror --source a1:9092 --target b1:9092 --print-only --form strimzi

next: shoal check mm2.properties
"""
_RUN_END = """\
a small shoal.toml (every key: docs/configuration.md):
  state-dir = "/var/lib/shoal"
  [[cluster]]
  name = "source"
  bootstrap = "a1:9092"
  [[cluster]]
  name = "target"
  bootstrap = "b1:9092"
  [[listener]]
  name = "source"
  cluster = "source"
  listen = "127.0.0.1:19092"
  ports = "19093-19192"
  mode = "wrap"
  pair = "target"
  [[listener]]
  name = "target"
  cluster = "target"
  listen = "127.0.0.1:29092"
  ports = "29093-29192"
  mode = "unwrap"

next: shoal check -c shoal.toml mm2.properties
"""
_CHECK_END = """\
reads: mm2.properties of a dedicated MirrorMaker 2, or the JSON of a
MirrorSourceConnector; with -c alone, shoal.toml. Shoal's addresses are taken
from -c, or from --source-listen and --target-listen, as given to shoal mirror.

examples:
  shoal check mm2.properties
  shoal check mm2.properties --source-listen shoal.example:19092 \\
              --target-listen shoal.example:29092
  shoal check -c shoal.toml connector.json
  curl -s localhost:8083/connectors/mirror | shoal check -

exit codes: 0 nothing must change, 1 something must change,
            2 the file or the configuration cannot be read
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, up to a limit."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size((_WIDTH, 50)).columns, _WIDTH)
        super().__init__(prog, max_help_position=min(38, width // 3), width=width)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog}: see {self.prog} --help\n")


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A `type=` function that reports the text of the `ValueError`."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ValueError(f"{text!r} is not a number of seconds, for example 5")
    return value


def _slots(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_PRODUCER_SLOTS:
        raise ValueError(f'"{text}" is not a number from 1 to {MAX_PRODUCER_SLOTS}')
    return int(text)


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r}: write NAME=VALUE")
    return name, value


_SECTIONS: Mapping[str, type[Any]] = {
    "cluster": ClusterSettings,
    "shallow": ShallowSettings,
    "limits": Limits,
    "log": LogSettings,
}
_TYPES: Mapping[object, Callable[[str], object]] = {float: _seconds, int: _slots}  # producer-slots is the only int
# Flags that set a key: the key, which gives the type, choices and default ({}); the metavar; the help.
_FLAGS = {
    "--same-cluster": (
        "shallow.same-cluster",
        None,
        "allow source and target to be the same cluster; copies must have other names (default: an error)",
    ),
    "--any-producer": (
        "shallow.any-producer",
        None,
        "accept returning records from any producer as evidence: for a mirror whose consumer and producer have "
        "different addresses (default: such a mirror gets no envelopes)",
    ),
    "--deep-topics": (
        "shallow.deep-topics",
        "REGEX",
        "never wrap these topics: a transform or filter reads their records (repeatable)",
    ),
    "--run-limit": (
        "shallow.run-limit",
        "SIZE",
        "maximum envelope size; the mirror's max.request.size must be larger (default: {})",
    ),
    "--min-batch-bytes": (
        "shallow.min-batch-bytes",
        "SIZE",
        "leave smaller batches to the mirror, which joins them (default: {})",
    ),
    "--plain-compression": (
        "shallow.plain-compression",
        None,
        "compress batches that were not wrapped, since the mirror no longer does (default: uncompressed)",
    ),
    "--producer-slots": (
        "shallow.producer-slots",
        "N",
        "maximum pairs of producer id and partition remembered for idempotent and exactly-once mirrors (default: {})",
    ),
    "--multi-batch": (
        "cluster.multi-batch",
        None,
        "auto: use them on target brokers that are proven to store them; never: do not try (default: {})",
    ),
    "--probe-topic": (
        "cluster.probe-topic",
        "NAME",
        "existing topic of the target for the proof (default: create and delete a scratch topic)",
    ),
    "--stall-exit": (
        "limits.stall-exit",
        "SECONDS",
        "exit if the event loop is blocked for this long, so a supervisor can restart Shoal; 0 = never (default: {})",
    ),
    "--log-level": ("log.level", None, "default: {}"),
    "--log-format": ("log.format", None, "default: {}"),
    "--report-every": (
        "log.report-every",
        "SECONDS",
        "seconds between traffic summaries (only if there was traffic); 0 = never (default: {})",
    ),
}


def _add_settings(group: argparse._ActionsContainer, *flags: str) -> None:
    """The namespace gets only the flags that were given."""
    for flag in flags:
        path, metavar, what = _FLAGS[flag]
        section, _, name = path.partition(".")
        key = keys_of(_SECTIONS[section])[name]
        default = _SECTIONS[section].__dataclass_fields__[key.field].default
        text, form = what.format(_shown(default, key.kind)), _form(key.kind, metavar)
        group.add_argument(flag, dest=f"{section}.{key.field}", default=argparse.SUPPRESS, help=text, **form)


def _shown(default: object, kind: object) -> object:
    if kind is Size and isinstance(default, int):
        return f"{default // KIB}KiB"
    return f"{default:g}" if isinstance(default, float) else default


def _form(kind: Any, metavar: str | None) -> dict[str, Any]:
    """The options of `add_argument` for a value of type `kind`."""
    if kind is bool:
        return {"action": "store_true"}
    if item := item_of(kind):
        return {"action": "append"} | _form(item, metavar)
    if known := choices_of(kind):
        return {"choices": list(known), "type": lambda word: known.get(word, word)}
    return {"type": _typed(_TYPES.get(kind) or form_of(kind).parse), "metavar": metavar}


def written(flags: argparse.Namespace, section: str) -> dict[str, Any]:
    """The fields of "cluster", "shallow", "limits" or "log" that were set by flags."""
    found = {name: value for name, value in vars(flags).items() if name.startswith(f"{section}.")}
    return {name.partition(".")[2]: tuple(x) if isinstance(x, list) else x for name, x in found.items()}


def build_parser(others: Mapping[str, str] = NO_OTHERS) -> argparse.ArgumentParser:
    """`others`: descriptions of further subcommands, by name; they are only listed."""
    parser = _Parser(prog="shoal", description=_TOP, epilog=_TOP_END)
    parser.add_argument("--version", action="version", version=f"shoal {shoal_version()}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for add in (_add_mirror, _add_run, _add_check, _add_probe):
        add(commands)
    for name, what in others.items():
        commands.add_parser(name, help=what)
    commands.metavar = f"{{{','.join(commands.choices)}}}"
    return parser


def _add_command(commands: argparse._SubParsersAction[_Parser], name: str, usage: str, what: str, end: str) -> _Parser:
    parser = commands.add_parser(
        name, help=what, usage=f"shoal {name} {usage}", description=f"{what[0].upper()}{what[1:]}.", epilog=end
    )
    parser.set_defaults(parser=parser)
    return parser


def _add_mirror(commands: argparse._SubParsersAction[_Parser]) -> None:
    what = "run both listeners for one mirror and print the MirrorMaker settings"
    usage = "--source HOST:PORT[,..] --target HOST:PORT[,..] [options]"
    parser = _add_command(commands, "mirror", usage, what, _MIRROR_END)
    group = parser.add_argument_group("clusters")
    group.add_argument(
        "--source", required=True, type=_typed(parse_addresses), metavar="HOST:PORT[,..]", help="brokers to read from"
    )
    group.add_argument(
        "--target", required=True, type=_typed(parse_addresses), metavar="HOST:PORT[,..]", help="brokers to write to"
    )
    _add_where(parser)
    group = parser.add_argument_group("broker ports")
    for side in ("source", "target"):
        what = f"one port per {side} broker (default: the 100 ports after --{side}-listen)"
        group.add_argument(f"--{side}-ports", type=_typed(parse_ports), metavar="FIRST-LAST", help=what)
    what = (
        "directory for state, such as the port of each broker (default: $XDG_STATE_HOME/shoal or ~/.local/state/shoal)"
    )
    group.add_argument("--state-dir", type=Path, metavar="DIR", help=what)
    _add_settings(group, "--same-cluster", "--any-producer")
    group = _add_shallow(parser)
    _add_settings(group, "--min-batch-bytes", "--plain-compression", "--producer-slots")
    what = "add the header shoal.tag.NAME to every envelope and capture file (repeatable)"
    group.add_argument("--tag", action="append", type=_typed(_tag), metavar="NAME=VALUE", default=[], help=what)
    group = parser.add_argument_group("several batches in one produce request (docs/multi-batch.md)")
    _add_settings(group, "--multi-batch", "--probe-topic")
    _add_printed(parser)
    _add_captures(parser)
    _add_settings(parser, "--stall-exit")
    _add_logs(parser)


def _add_captures(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("capture (docs/capture.md)")
    what = "write a traffic index to this existing directory (default: off)"
    group.add_argument("--capture", type=Path, metavar="DIR", help=what)
    what = "write whole frames, records included, to this existing directory (default: off)"
    group.add_argument("--capture-raw", type=Path, metavar="DIR", help=what)
    what = "write only frames of exchanges that mention this topic (repeatable)"
    group.add_argument("--capture-topic", action="append", default=[], metavar="NAME", help=what)


def _add_printed(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("MirrorMaker settings")
    group.add_argument(
        "--source-alias", default="A", metavar="A", help="the source's name in mm2.properties (default: A)"
    )
    group.add_argument(
        "--target-alias", default="B", metavar="B", help="the target's name in mm2.properties (default: B)"
    )
    group.add_argument("--form", choices=[*FORMS, "all"], default="all", help="how MirrorMaker 2 runs (default: all)")
    group.add_argument("--print-only", action="store_true", help="print the MirrorMaker settings and exit")


def _add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("listeners")
    for side, port, client in (("source", 19092, "consumer"), ("target", 29092, "producer")):
        what = f"address for the mirror's {client} (default: 127.0.0.1:{port})"
        default = Address("127.0.0.1", port)
        group.add_argument(
            f"--{side}-listen", type=_typed(parse_address), default=default, metavar="HOST:PORT", help=what
        )
    what = "host name that clients use for this machine (default: the host of --*-listen)"
    group.add_argument("--advertise", metavar="HOST", help=what)


def _add_shallow(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("shallow mirroring")
    _add_settings(group, "--deep-topics", "--run-limit")
    return group


def _add_logs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs (on standard error)")
    _add_settings(group, "--log-level", "--log-format", "--report-every")


def _add_run(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add_command(
        commands, "run", "-c shoal.toml [options]", "run the listeners of a configuration file", _RUN_END
    )
    parser.add_argument(
        "-c", "--config", required=True, type=Path, metavar="shoal.toml", help="clusters, listeners, limits, logs"
    )
    _add_settings(parser, "--stall-exit")
    _add_logs(parser)


def _add_check(commands: argparse._SubParsersAction[_Parser]) -> None:
    what = "check a MirrorMaker 2 configuration and print what must change"
    parser = _add_command(commands, "check", "[FILE] [-c shoal.toml] [options]", what, _CHECK_END)
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="mm2.properties, connector.json, or - for standard input"
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="shoal.toml", help="configuration of the Shoal that the mirror uses"
    )
    _add_where(parser)
    _add_shallow(parser)
    parser.set_defaults(tag=[])


def _add_probe(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add_command(commands, "probe", PROBE_USAGE, PROBE_WHAT, PROBE_END)
    add_probe_options(parser, _typed, _seconds)


def parse_arguments(
    arguments: Sequence[str] | None = None, others: Mapping[str, str] = NO_OTHERS
) -> argparse.Namespace:
    """Exits with code 2 and an error if the arguments are wrong."""
    parser = build_parser(others)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        own: argparse.ArgumentParser = parsed.parser
        known = [option for action in own._actions for option in action.option_strings if option.startswith("--")]
        flag = unknown[0].partition("=")[0]
        own.error(f"unknown argument {flag}; {did_you_mean(flag, known)}".rstrip("; "))
    return parsed
