"""The command line of `shoal`: the argparse parsers. `main.py` runs the commands."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shoal.command_line import Parser, a_path, typed
from shoal.proxy.cli.exit_codes import help_text
from shoal.proxy.cli.flags.help_texts import CHECK_END, MIRROR_END, RUN_END, TOP, TOP_END
from shoal.proxy.cli.flags.probe import PROBE_END, PROBE_USAGE, PROBE_WHAT, add_probe_options
from shoal.proxy.cli.flags.security import add_mirror_security
from shoal.proxy.cli.flags.setting import SettingFlag, add_setting
from shoal.proxy.cli.mm2_lines import FORMS
from shoal.proxy.config.identity import shoal_version
from shoal.proxy.config.parse import check_topic_part, parse_address, parse_addresses, parse_host, parse_ports
from shoal.proxy.config.settings import Address, AdminSettings, ClusterSettings, Limits, LogSettings, ShallowSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

__all__ = ["NO_OTHERS", "build_parser", "parse_arguments"]

NO_OTHERS: Mapping[str, str] = MappingProxyType({})


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
    "admin": AdminSettings,
}
_FLAGS: Mapping[str, SettingFlag] = {
    "--same-cluster": SettingFlag(
        "shallow.same-cluster",
        None,
        "allow source and target to be the same cluster; copies must have other names (default: an error)",
    ),
    "--any-producer": SettingFlag(
        "shallow.any-producer",
        None,
        "accept returning records from any producer as evidence: for a mirror whose consumer and producer have "
        "different addresses (default: such a mirror gets no envelopes)",
    ),
    "--on-gap": SettingFlag(
        "shallow.on-gap",
        None,
        "what happens to a partition of which the mirror passes over records: report logs it; stop also sends the "
        "mirror no more of it until shoal gaps acknowledges it; report-running is for workers with a Shoal each "
        "(default: report)",
    ),
    "--deep-topics": SettingFlag(
        "shallow.deep-topics",
        "REGEX",
        "never wrap these topics: a transform or filter reads their records (repeatable)",
    ),
    "--same-offsets": SettingFlag(
        "shallow.same-offsets",
        "REGEX",
        "keep the offsets of source topics with such names (the whole name matches), in target brokers with the Java "
        "agent and -Dshoal.mirror.topics (default: none)",
    ),
    "--without-agent": SettingFlag(
        "shallow.without-agent",
        None,
        "with --same-offsets: what happens to a topic for which no target broker has the agent: wait, or ordinary: it "
        "is mirrored with other offsets (default: wait)",
    ),
    "--follow-log-start": SettingFlag(
        "shallow.follow-log-start",
        None,
        "with --same-offsets: delete in the copy what the source has deleted; the mirror's producer needs DELETE on "
        "the topic (default: the target's own retention)",
    ),
    "--run-limit": SettingFlag(
        "shallow.run-limit",
        "SIZE",
        "maximum envelope size; the mirror's max.request.size must be larger (default: {})",
    ),
    "--min-batch-bytes": SettingFlag(
        "shallow.min-batch-bytes",
        "SIZE",
        "leave smaller batches to the mirror, which joins them (default: {})",
    ),
    "--claim-check-bytes": SettingFlag(
        "shallow.claim-check-bytes",
        "SIZE",
        "keep up to this much of the source's answers here, and give the mirror claim checks for their batches; 0: all "
        "batches pass through the mirror (default: {})",
    ),
    "--plain-compression": SettingFlag(
        "shallow.plain-compression",
        None,
        "compress batches that were not wrapped, since the mirror no longer does (default: uncompressed)",
    ),
    "--producer-slots": SettingFlag(
        "shallow.producer-slots",
        "N",
        "maximum pairs of producer id and partition remembered for idempotent and exactly-once mirrors (default: {})",
    ),
    "--multi-batch": SettingFlag(
        "cluster.multi-batch",
        None,
        "auto: use them on target brokers that are proven to store them; never: do not try (default: {})",
    ),
    "--probe-topic": SettingFlag(
        "cluster.probe-topic",
        "NAME",
        "existing topic of the target for the proof (default: create and delete a scratch topic)",
    ),
    "--stall-exit": SettingFlag(
        "limits.stall-exit",
        "SECONDS",
        "exit if the event loop is blocked for this long, so a supervisor can restart Shoal; 0 = never (default: {})",
    ),
    "--admin": SettingFlag(
        "admin.listen",
        "HOST:PORT",
        "serve metrics, health and status over HTTP at this address, without a login (default: off)",
    ),
    "--log-level": SettingFlag("log.level", None, "default: {}"),
    "--log-format": SettingFlag("log.format", None, "default: {}"),
    "--report-every": SettingFlag(
        "log.report-every",
        "SECONDS",
        "seconds between traffic summaries (only if there was traffic); 0 = never (default: {})",
    ),
}


def _add_settings(group: argparse._ActionsContainer, *names: str) -> None:
    for name in names:
        section, _, key = _FLAGS[name].key.partition(".")
        add_setting(group, name, _FLAGS[name]._replace(key=key), section, _SECTIONS[section])


def build_parser(others: Mapping[str, str] = NO_OTHERS) -> Parser:
    """`others`: descriptions of further subcommands, by name; they are only listed."""
    parser = Parser(prog="shoal", description=TOP, epilog=TOP_END + help_text())
    parser.add_argument("--version", action="version", version=f"shoal {shoal_version()}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for add in (_add_mirror, _add_run, _add_check, _add_probe):
        add(commands)
    for name, what in others.items():
        commands.add_parser(name, help=what)
    return parser


def _add_command(commands: argparse._SubParsersAction[Parser], name: str, usage: str, what: str, end: str) -> Parser:
    parser = commands.add_parser(
        name, help=what, usage=f"shoal {name} {usage}", description=f"{what[0].upper()}{what[1:]}.", epilog=end
    )
    return parser


def _add_mirror(commands: argparse._SubParsersAction[Parser]) -> None:
    what = "run both listeners for one mirror and print the MirrorMaker settings"
    usage = "--source HOST:PORT[,..] --target HOST:PORT[,..] [options]"
    parser = _add_command(commands, "mirror", usage, what, MIRROR_END)
    group = parser.add_argument_group("clusters")
    group.add_argument(
        "--source", required=True, type=typed(parse_addresses), metavar="HOST:PORT[,..]", help="brokers to read from"
    )
    group.add_argument(
        "--target", required=True, type=typed(parse_addresses), metavar="HOST:PORT[,..]", help="brokers to write to"
    )
    _add_where(parser)
    add_mirror_security(parser)
    group = parser.add_argument_group("broker ports")
    for side in ("source", "target"):
        what = f"one port per {side} broker (default: the 100 ports after --{side}-listen)"
        group.add_argument(f"--{side}-ports", type=typed(parse_ports), metavar="FIRST-LAST", help=what)
    what = (
        "directory for state, such as the port of each broker (default: $XDG_STATE_HOME/shoal or ~/.local/state/shoal)"
    )
    group.add_argument("--state-dir", type=a_path, metavar="DIR", help=what)
    _add_takeover(group)
    _add_settings(group, "--same-cluster", "--any-producer")
    group = _add_shallow(parser)
    _add_settings(
        group,
        "--min-batch-bytes",
        "--claim-check-bytes",
        "--plain-compression",
        "--producer-slots",
        "--on-gap",
        "--without-agent",
        "--follow-log-start",
    )
    what = "add the header shoal.tag.NAME to every envelope and capture file (repeatable)"
    group.add_argument("--tag", action="append", type=typed(_tag), metavar="NAME=VALUE", default=[], help=what)
    group = parser.add_argument_group("several batches in one produce request (docs/multi-batch.md)")
    _add_settings(group, "--multi-batch", "--probe-topic")
    _add_printed(parser)
    _add_captures(parser)
    _add_settings(parser, "--stall-exit", "--admin")
    _add_logs(parser)


def _add_takeover(parser: argparse._ActionsContainer) -> None:
    what = "take the ports over from the Shoal that runs in the same state-dir, which then ends (docs/operations.md)"
    parser.add_argument("--takeover", action="store_true", help=what)


def _add_captures(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("capture (docs/capture.md)")
    what = "write a traffic index to this existing directory (default: off)"
    group.add_argument("--capture", type=a_path, metavar="DIR", help=what)
    what = "write whole frames, records included, to this existing directory (default: off)"
    group.add_argument("--capture-raw", type=a_path, metavar="DIR", help=what)
    what = "write only frames of exchanges that mention this topic (repeatable)"
    group.add_argument("--capture-topic", action="append", default=[], metavar="NAME", help=what)


def _add_printed(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("MirrorMaker settings")
    for side, default in (("source", "A"), ("target", "B")):
        what = f"the {side}'s name in mm2.properties (default: {default})"
        alias = typed(check_topic_part)
        group.add_argument(f"--{side}-alias", type=alias, default=default, metavar=default, help=what)
    group.add_argument("--form", choices=[*FORMS, "all"], default="all", help="how MirrorMaker 2 runs (default: all)")
    group.add_argument("--print-only", action="store_true", help="print the MirrorMaker settings and exit")


def _add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("listeners")
    for side, port, client in (("source", 19092, "consumer"), ("target", 29092, "producer")):
        what = f"address for the mirror's {client} (default: 127.0.0.1:{port})"
        default = Address("127.0.0.1", port)
        group.add_argument(
            f"--{side}-listen", type=typed(parse_address), default=default, metavar="HOST:PORT", help=what
        )
    what = "host name that clients use for this machine (default: the host of --*-listen)"
    group.add_argument("--advertise", type=typed(parse_host), metavar="HOST", help=what)


def _add_shallow(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("shallow mirroring")
    _add_settings(group, "--deep-topics", "--same-offsets", "--run-limit")
    return group


def _add_logs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs (on standard error)")
    _add_settings(group, "--log-level", "--log-format", "--report-every")


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _add_command(
        commands, "run", "-c shoal.toml [options]", "run the listeners of a configuration file", RUN_END
    )
    parser.add_argument(
        "-c",
        "--config",
        required=True,
        type=a_path,
        metavar="shoal.toml",
        help="configuration file, as in: shoal run -c shoal.toml",
    )
    parser.add_argument(
        "--watch", action="store_true", help="reload the configuration when its file changes, as after SIGHUP"
    )
    _add_takeover(parser)
    _add_settings(parser, "--stall-exit", "--admin")
    _add_logs(parser)


def _add_check(commands: argparse._SubParsersAction[Parser]) -> None:
    what = "check a MirrorMaker 2 configuration, or shoal.toml, and print what must change"
    parser = _add_command(commands, "check", "[FILE] [-c shoal.toml] [options]", what, CHECK_END)
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="mm2.properties, connector.json, or - for standard input"
    )
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        metavar="shoal.toml",
        help="configuration of the Shoal that the mirror uses; without FILE, it is what is checked",
    )
    _add_where(parser)
    add_mirror_security(parser)
    _add_shallow(parser)
    parser.set_defaults(tag=[])


def _add_probe(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _add_command(commands, "probe", PROBE_USAGE, PROBE_WHAT, PROBE_END)
    add_probe_options(parser)


def parse_arguments(
    arguments: Sequence[str] | None = None, others: Mapping[str, str] = NO_OTHERS
) -> argparse.Namespace:
    """Exits with code 2 and an error if the arguments are wrong."""
    return build_parser(others).parse_args(arguments)
