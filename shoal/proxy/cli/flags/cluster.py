"""The flags of commands that use one cluster or two: addresses, or names in shoal.toml, and their security.

--bootstrap HOST:PORT, or -c shoal.toml --cluster NAME                                one
--from HOST:PORT --to HOST:PORT, or -c shoal.toml --source NAME --target NAME         a source and a target
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shoal.command_line import a_path, did_you_mean, listed, typed
from shoal.proxy.cli.flags.security import add_cluster_security, add_pair_security, cluster_security, to_flag
from shoal.proxy.config.parse import parse_addresses
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.rules.sasl import check_cluster_sasl
from shoal.proxy.config.rules.security import check_tls
from shoal.proxy.config.settings import Address, ClusterSettings, Limits, Settings
from shoal.proxy.config.toml import load_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.proxy.config.problems import Problem

__all__ = [
    "UsedCluster",
    "UsedPair",
    "add_cluster_flags",
    "add_pair_flags",
    "as_cluster_flag",
    "used_cluster",
    "used_pair",
]

_NAME = "brokers"  # of a cluster that flags define
_ADDRESSES = {"source": "--from", "target": "--to"}


class UsedCluster(NamedTuple):
    settings: ClusterSettings
    limits: Limits


class UsedPair(NamedTuple):
    source: UsedCluster
    target: UsedCluster


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a cluster of shoal.toml")
    what = "take address, TLS and SASL from this file"
    group.add_argument("-c", "--config", type=a_path, metavar="shoal.toml", help=what)
    group.add_argument("--cluster", metavar="NAME", help="its cluster (default: the only one)")
    add_cluster_security(parser)


def used_cluster(flags: argparse.Namespace, bootstrap: Sequence[Address] | None, address: str) -> UsedCluster | None:
    """None: neither an address nor a file is given. `address`: the name of the argument. Raises OperatorError."""
    tls, sasl = cluster_security(flags)
    if flags.config is None:
        if flags.cluster is not None:
            raise OperatorError.of("--cluster", "needs -c shoal.toml")
        if bootstrap is None:
            if tls is not None or sasl is not None:
                raise OperatorError.of("--tls and --sasl flags", f"need {address}")
            return None
        settings = ClusterSettings(name=_NAME, bootstrap=tuple(bootstrap), tls=tls, sasl=sasl)
        if problems := _problems(settings):
            raise OperatorError(tuple(map(as_cluster_flag, problems)))
        return UsedCluster(settings, Limits())
    if tls is not None or sasl is not None:
        raise OperatorError.of("-c", "is given together with --tls or --sasl flags: the file has these settings")
    return _named(flags, "--cluster", flags.cluster, bootstrap)


def add_pair_flags(parser: argparse.ArgumentParser) -> None:
    for side, flag in _ADDRESSES.items():
        what = f"brokers of the {side} cluster (default: those of -c)"
        addresses = typed(parse_addresses)
        parser.add_argument(flag, type=addresses, dest=f"{side}_bootstrap", metavar="HOST:PORT[,..]", help=what)
    group = parser.add_argument_group("clusters of shoal.toml")
    what = "take addresses, TLS and SASL from this file"
    group.add_argument("-c", "--config", type=a_path, metavar="shoal.toml", help=what)
    for side in _ADDRESSES:
        group.add_argument(f"--{side}", metavar="NAME", help=f"its {side} cluster (default: {side})")
    add_pair_security(parser)


def used_pair(flags: argparse.Namespace) -> UsedPair:
    """Raises OperatorError."""
    security = {side: cluster_security(flags, f"{side}-") for side in _ADDRESSES}
    bootstraps = {side: getattr(flags, f"{side}_bootstrap") for side in _ADDRESSES}
    if flags.config is not None:
        if any(option for both in security.values() for option in both):
            raise OperatorError.of("-c", "is given together with TLS or SASL flags: the file has these settings")
        return UsedPair(
            *(
                _named(flags, f"--{side}", getattr(flags, side) or side, bootstrap)
                for side, bootstrap in bootstraps.items()
            )
        )
    for side, flag in _ADDRESSES.items():
        if getattr(flags, side) is not None:
            raise OperatorError.of(f"--{side}", f"needs -c shoal.toml: give the address as {flag} HOST:PORT")
        if bootstraps[side] is None:
            raise OperatorError.of(flag, "is missing: give HOST:PORT, or -c shoal.toml")
    clusters = [
        ClusterSettings(name=side, bootstrap=tuple(bootstraps[side]), tls=tls, sasl=sasl)
        for side, (tls, sasl) in security.items()
    ]
    if problems := _problems(*clusters):
        raise OperatorError(tuple(map(to_flag, problems)))
    return UsedPair(*(UsedCluster(cluster, Limits()) for cluster in clusters))


def _problems(*clusters: ClusterSettings) -> list[Problem]:
    settings = Settings(clusters=clusters, listeners=())
    return [*check_tls(settings, lambda index, key: key), *check_cluster_sasl(settings)]


def _named(flags: argparse.Namespace, flag: str, name: str | None, bootstrap: Sequence[Address] | None) -> UsedCluster:
    """A cluster of the file."""
    file: Path = flags.config
    settings = load_config(file)
    names = [cluster.name for cluster in settings.clusters]
    if name is None and len(names) > 1:
        raise OperatorError.of(flag, f"is missing: {file} has {listed(names)}")
    found = [cluster for cluster in settings.clusters if cluster.name == name or name is None]
    if not found:
        hint = did_you_mean(name or "", names)
        raise OperatorError.of(flag, f'{file} has no cluster "{name}"; {hint}known: {listed(names)}')
    used = found[0] if bootstrap is None else replace(found[0], bootstrap=tuple(bootstrap))
    return UsedCluster(used, settings.limits)


def as_cluster_flag(problem: Problem) -> Problem:
    """A problem of a cluster that flags define, with the flag."""
    return to_flag(problem, {"0": "", _NAME: ""})
