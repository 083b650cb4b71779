"""The flags of commands that use one cluster: its address, or `-c shoal.toml --cluster NAME`, and its security."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shoal.command_line import a_path, did_you_mean, listed
from shoal.proxy.cli.flags.security import add_cluster_security, cluster_security, to_flag
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

__all__ = ["UsedCluster", "add_cluster_flags", "as_cluster_flag", "used_cluster"]

_NAME = "brokers"  # of a cluster that flags define


class UsedCluster(NamedTuple):
    settings: ClusterSettings
    limits: Limits


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
    return _from_file(flags.config, flags.cluster, bootstrap)


def _problems(cluster: ClusterSettings) -> list[Problem]:
    settings = Settings(clusters=(cluster,), listeners=())
    return [*check_tls(settings, lambda index, key: key), *check_cluster_sasl(settings)]


def _from_file(file: Path, name: str | None, bootstrap: Sequence[Address] | None) -> UsedCluster:
    settings = load_config(file)
    names = [cluster.name for cluster in settings.clusters]
    if name is None and len(names) > 1:
        raise OperatorError.of("--cluster", f"is missing: {file} has {listed(names)}")
    found = [cluster for cluster in settings.clusters if cluster.name == name or name is None]
    if not found:
        hint = did_you_mean(name or "", names)
        raise OperatorError.of("--cluster", f'{file} has no cluster "{name}"; {hint}known: {listed(names)}')
    used = found[0] if bootstrap is None else replace(found[0], bootstrap=tuple(bootstrap))
    return UsedCluster(used, settings.limits)


def as_cluster_flag(problem: Problem) -> Problem:
    """A problem of a cluster that flags define, with the flag."""
    return to_flag(problem, {"0": "", _NAME: ""})
