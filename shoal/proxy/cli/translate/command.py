"""The command: its flags, which clusters are asked, and what it prints."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.command_line import JSON_FLAG, Parser, did_you_mean, listed, say, typed, whole
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK
from shoal.proxy.cli.flags.mirror import default_state_dir
from shoal.proxy.cli.translate.output import SAME_OFFSETS, Translated, Unknown, line, reset_lines, unknown_line
from shoal.proxy.cli.translate.read import Cannot, ClusterReader
from shoal.proxy.cli.translate.state import Pair, load_pairs
from shoal.proxy.cli.translate.translator import Translator
from shoal.proxy.config.parse import parse_addresses
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import ClusterSettings, Limits, Mode
from shoal.proxy.config.toml import load_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Mapping, Sequence, Set

    from shoal.proxy.config.settings import Address, Settings

__all__ = ["main", "parser"]

_END = """\
Shoal keeps which target offsets it gave to which source offsets (state-dir).
So the answer for a record that went through in an envelope is exact, whatever
retries, restarts and compaction lay in between. A record that the mirror
copied raw (until it is proven, the first batch after its start, batches with
holes) is looked up at both clusters: with -c, or with both bootstrap flags.
Otherwise it has bounds; to continue at the lower one misses nothing. With
--to-source, only brokers know what an exactly-once mirror had copied in a
transaction that was aborted: without them, such records may be missed.

A group that goes on at another cluster:
  shoal translate -c shoal.toml --group billing --reset-file billing.csv
  kafka-consumer-groups.sh --bootstrap-server TARGET --group billing \\
      --reset-offsets --from-file billing.csv --execute

What a group has committed at one source is translated for the copies of this
source only. With several clusters on the other side, --at chooses one, since
a reset file is for one cluster.

more examples:
  shoal translate -c shoal.toml orders-0 1200 1300
  shoal translate --state-dir /var/lib/shoal A.orders-0 1187 --to-source
  shoal translate orders-0 1200 --json | jq .offsets[0].translated

exit codes: 0 all offsets are exact, 1 an offset has bounds, or is not known,
            2 wrong arguments or no broker reachable, 3 error in Shoal itself
"""


def parser() -> Parser:
    translate = Parser(
        prog="shoal translate",
        description="The offset of a record at the other side of a mirror.",
        epilog=_END,
    )
    translate.add_argument("partition", nargs="?", metavar="TOPIC-PARTITION", help="of the source (see --to-source)")
    translate.add_argument("offsets", nargs="*", type=whole(0), metavar="OFFSET", help="offsets of this partition")
    translate.add_argument("--group", metavar="GROUP", help="the committed offsets of this consumer group instead")
    what = "translate from the target to the source (to fail back)"
    translate.add_argument("--to-source", action="store_true", help=what)
    what = "with --group: write what kafka-consumer-groups.sh --reset-offsets --from-file takes"
    translate.add_argument("--reset-file", type=Path, metavar="FILE", help=what)
    translate.add_argument(JSON_FLAG, action="store_true", help="print one JSON object")
    where = translate.add_argument_group("where")
    which = where.add_mutually_exclusive_group()
    what = "the configuration of the Shoal that runs the mirror: its state-dir, its clusters with TLS and SASL"
    which.add_argument("-c", "--config", type=Path, metavar="shoal.toml", help=what)
    what = "its state directory (default: that of shoal mirror)"
    which.add_argument("--state-dir", type=Path, metavar="DIR", help=what)
    for side in ("source", "target"):
        what = f"brokers of the {side} cluster, without TLS and SASL (with them: -c)"
        where.add_argument(f"--{side}-bootstrap", type=typed(parse_addresses), metavar="HOST:PORT[,..]", help=what)
    what = "only copies at this cluster: its id, or its name in the configuration (default: all)"
    where.add_argument("--at", metavar="CLUSTER", help=what)
    what = "with -c: ask no broker, unless it is for a group"
    where.add_argument("--offline", action="store_true", help=what)
    return translate


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    _check(flags)
    settings = None if flags.config is None else load_config(flags.config)
    pairs = load_pairs(_directory(flags, settings))
    found, unknown = trio.run(partial(_translated, flags, settings, pairs))
    if flags.reset_file is not None:
        _write(flags.reset_file, found)
    _print(flags, found, unknown)
    return MUST_CHANGE if unknown or not all(translated.answer.why.is_exact for translated in found) else OK


def _check(flags: argparse.Namespace) -> None:
    if flags.group is None and not flags.offsets:
        what = "give TOPIC-PARTITION and at least one OFFSET, or --group (see shoal translate --help)"
        raise OperatorError.of("shoal translate", what)
    if flags.group is not None and flags.partition is not None:
        raise OperatorError.of("--group", f"translates all partitions of the group: leave out {flags.partition}")
    if flags.reset_file is not None and flags.group is None:
        raise OperatorError.of("--reset-file", "needs --group")
    if flags.config is not None and (flags.source_bootstrap or flags.target_bootstrap):
        side = "source" if flags.source_bootstrap else "target"
        raise OperatorError.of(f"--{side}-bootstrap", "is given together with -c: the file has the brokers' addresses")


def _directory(flags: argparse.Namespace, settings: Settings | None) -> Path:
    if settings is None:
        directory: Path = flags.state_dir or default_state_dir()
        return directory
    if settings.state_dir is None:
        raise OperatorError.of(str(flags.config), "has no state-dir: without it, Shoal keeps no offsets")
    return settings.state_dir


# -- clusters ----------------------------------------------------------------------------------------------------------


class _Readers(NamedTuple):
    """`sources`: by cluster id. `targets`: by listener."""

    sources: dict[str, ClusterReader]
    targets: dict[str, ClusterReader]


class _Committed(NamedTuple):
    """An offset that is asked for; `origins` as in `Translator.translate`. `given`: from there on, the group has got no
    record that is before its offset; None: that could not be read.
    """

    partition: TopicPartition
    offset: int
    given: int | None
    origins: frozenset[str] | None = None


def _clusters(
    flags: argparse.Namespace, settings: Settings | None, pairs: Sequence[Pair]
) -> tuple[list[ClusterSettings], dict[str, ClusterSettings], Limits]:
    """-> those that may be a source; the target of each listener."""
    if settings is None:
        sources, targets = (
            [_cluster(side, addresses)] if (addresses := getattr(flags, f"{side}_bootstrap")) else []
            for side in ("source", "target")
        )
        return sources, {pair.listener: targets[0] for pair in pairs if targets}, Limits()
    by_name = {cluster.name: cluster for cluster in settings.clusters}
    wrapping = dict.fromkeys(listener.cluster for listener in settings.listeners if listener.mode is Mode.WRAP)
    unwrapping = {
        listener.name: by_name[listener.cluster] for listener in settings.listeners if listener.mode is Mode.UNWRAP
    }
    return [by_name[name] for name in wrapping], unwrapping, settings.limits


def _cluster(side: str, addresses: Sequence[Address]) -> ClusterSettings:
    return ClusterSettings(name=side, bootstrap=tuple(addresses))


async def _translated(
    flags: argparse.Namespace, settings: Settings | None, pairs: Sequence[Pair]
) -> tuple[list[Translated], list[Unknown]]:
    """Raises OperatorError."""
    with ExitStack() as stack:
        sources, targets, limits = _clusters(flags, settings, pairs)
        may_read = not flags.offline and (settings is not None or bool(sources and targets))
        hint = "no broker may be asked (--offline)" if flags.offline else _hint(settings)
        readers = _Readers({}, {})
        made = {
            cluster.name: stack.enter_context(closing(ClusterReader(cluster, limits)))
            for cluster in {cluster.name: cluster for cluster in (*sources, *targets.values())}.values()
        }
        if may_read:
            hint = (
                await _identify(pairs, [made[source.name] for source in sources], _named(targets, made), readers)
                or hint
            )
        committed = list[_Committed]()
        if flags.group is not None:
            asked = (
                list(_named(targets, made).values()) if flags.to_source else [made[source.name] for source in sources]
            )
            committed = await _committed(flags, asked, settings, {pair.target for pair in pairs})
        by_name = {source.name: made[source.name] for source in sources}
        pairs = [_with_ids(pair, by_name.get(pair.source.cluster), targets, made) for pair in pairs]
        chosen, others = _at(flags, pairs, targets, {reader.identity: reader.name for reader in made.values()})
        translator = Translator(
            chosen,
            sources=readers.sources,
            targets=readers.targets,
            to_source=flags.to_source,
            copies=readers.targets if flags.group is None else _named(targets, made),
            why_not=hint,
        )
        if flags.group is None:
            partition = _partition(flags.partition, translator.partitions())
            committed = [_Committed(partition, offset, offset) for offset in flags.offsets]
        found, unknown = await _all(translator, committed, others)
        if not found and not unknown:
            what = f"nothing that {flags.group} has committed is at {flags.at}, too: without --at, all copies are shown"
            raise OperatorError.of("--at", what)
        return found, unknown


def _with_ids(
    pair: Pair, source: ClusterReader | None, targets: Mapping[str, ClusterSettings], made: Mapping[str, ClusterReader]
) -> Pair:
    """A cluster is one, also if Shoal had only its name until it knew the id. `source`: the one of this name."""
    if source is not None:
        pair = replace(pair, source=pair.source._replace(cluster=source.identity))
    if pair.target_cluster is None and (target := targets.get(pair.listener)) is not None:
        pair = replace(pair, target_cluster=made[target.name].identity)
    return pair


def _at(
    flags: argparse.Namespace, pairs: Sequence[Pair], targets: Mapping[str, ClusterSettings], by_id: Mapping[str, str]
) -> tuple[Sequence[Pair], set[TopicPartition]]:
    """The pairs whose other side is the cluster of --at; what is asked about in the others. `by_id`: names.

    Raises OperatorError if none is at this cluster.
    """
    if flags.at is None:
        return pairs, set()
    chosen, others, known = list[Pair](), set[TopicPartition](), set[str]()
    for pair in pairs:
        cluster = pair.source.cluster if flags.to_source else pair.target_cluster or pair.listener
        names = {cluster, by_id.get(cluster, cluster)}
        if not flags.to_source and (target := targets.get(pair.listener)) is not None:
            names.add(target.name)
        known |= names
        if flags.at in names:
            chosen.append(pair)
        else:
            others.add(pair.target if flags.to_source else pair.source_partition)
    if not chosen:
        what = f"nothing is known of {flags.at}; {did_you_mean(flags.at, known)}known: {listed(sorted(known))}"
        raise OperatorError.of("--at", what)
    return chosen, others


def _named(targets: dict[str, ClusterSettings], made: dict[str, ClusterReader]) -> dict[str, ClusterReader]:
    return {listener: made[cluster.name] for listener, cluster in targets.items()}


def _hint(settings: Settings | None) -> str | None:
    return None if settings is not None else "give --source-bootstrap and --target-bootstrap, or -c, to look it up"


async def _identify(
    pairs: Sequence[Pair], sources: Sequence[ClusterReader], targets: dict[str, ClusterReader], readers: _Readers
) -> str | None:
    """Which cluster is which -> why one cannot be asked. A wrong cluster is never read."""
    why = None
    for source in sources:
        try:
            readers.sources[await source.cluster_id() or source.name] = source
        except Cannot as error:
            why = str(error)
    for listener, wanted in {pair.listener: pair.target_cluster for pair in pairs}.items():
        if (target := targets.get(listener)) is None:
            continue
        try:
            found = await target.cluster_id()
            if wanted in (None, found):
                readers.targets[listener] = target
            else:
                why = f"cluster {target.name!r} has the id {found}, and the offsets are of {wanted}"
        except Cannot as error:
            why = str(error)
    return why


async def _committed(
    flags: argparse.Namespace, readers: Sequence[ClusterReader], settings: Settings | None, copies: Set[TopicPartition]
) -> list[_Committed]:
    side = "target" if flags.to_source else "source"
    if not readers:
        what = f"needs the brokers of the {side}: give --{side}-bootstrap, or -c shoal.toml"
        raise OperatorError.of("--group", what if settings is None else f"{flags.config} has no {side} of a mirror")
    found = list[_Committed]()
    by_name = {reader.name: reader for reader in readers}
    for reader in by_name.values():
        try:
            has_id = await reader.cluster_id() is not None
            # without an id it may have another name in the files than here
            origins = frozenset({reader.identity}) if has_id or len(by_name) > 1 else None
            offsets = await reader.committed(flags.group)
            given: Mapping[TopicPartition, int] = offsets
            if flags.to_source:
                given = await reader.given_below({each: offsets[each] for each in offsets.keys() & copies})
            found += [_Committed(each, offset, given.get(each), origins) for each, offset in sorted(offsets.items())]
        except Cannot as error:
            raise OperatorError.of("--group", str(error)) from None
    if not found:
        what = f"{flags.group} has committed nothing at cluster {listed([reader.name for reader in readers])}"
        raise OperatorError.of("--group", f"{what}: look at kafka-consumer-groups.sh --list")
    return found


def _partition(text: str, known: Sequence[TopicPartition]) -> TopicPartition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        raise OperatorError.of(text, "is not TOPIC-PARTITION, as in orders-0")
    partition = TopicPartition(topic, int(number))
    if partition not in known:
        names = sorted(f"{copy.topic}-{copy.partition}" for copy in known)
        more = f", and {len(names) - 10} more" if len(names) > 10 else ""
        have = f"{did_you_mean(text, names)}known: {listed(names[:10])}{more}" if names else "nothing is known yet"
        what = f"Shoal knows no offsets of this partition in this direction ({SAME_OFFSETS}); {have}"
        raise OperatorError.of(text, what)
    return partition


async def _all(
    translator: Translator, asked: Sequence[_Committed], others: Container[TopicPartition]
) -> tuple[list[Translated], list[Unknown]]:
    """`others`: partitions that are at another cluster than that of --at."""
    found, unknown = list[Translated](), list[Unknown]()
    for partition, offset, given, origins in asked:
        answers = await translator.translate(partition, offset if given is None else given, origins)
        if given is None:
            answers = [replace(answer, answer=answer.answer.in_doubt()) for answer in answers]
        found += [replace(answer, asked=offset) for answer in answers]
        if not answers and partition not in others:
            unknown.append(Unknown(partition, offset))
    return found, unknown


# -- output ------------------------------------------------------------------------------------------------------------


def _write(file: Path, found: Sequence[Translated]) -> None:
    """Raises OperatorError."""
    clusters = sorted({translated.other_cluster for translated in found})
    if len(clusters) > 1:
        what = f"the offsets are of several clusters ({', '.join(clusters)}): write a file for each, with --at"
        raise OperatorError.of("--reset-file", what)
    try:
        file.write_text("".join(reset_lines(found)))
    except OSError as error:
        raise OperatorError.of("--reset-file", f"{file} cannot be written: {error.strerror or error}") from None


def _print(flags: argparse.Namespace, found: Sequence[Translated], unknown: Sequence[Unknown]) -> None:
    if flags.json:
        left = [{"topic": topic, "partition": number, "offset": asked} for (topic, number), asked in unknown]
        document = {"group": flags.group, "offsets": [translated.values() for translated in found], "unknown": left}
        say(json.dumps(document))
        return
    for translated in found:
        say(line(translated))
    for missing in unknown:
        say(unknown_line(missing))
