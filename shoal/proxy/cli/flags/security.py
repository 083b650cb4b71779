"""The flags of TLS and SASL: the same keys as `[cluster.tls]`, `[cluster.sasl]` and `[listener.tls]`, with a prefix.

    --source-tls-ca, --target-sasl-username   `shoal mirror`, `check` and `groups`: for each cluster
    --tls-ca, --sasl-username                 `shoal probe` and `replay`: they have one cluster
    --listen-tls-cert                         `shoal mirror` and `check`: both listeners

A flag never holds a secret, since other users see command lines: it names a file. Further keys need shoal.toml.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.proxy.cli.flags.setting import SettingFlag, add_setting, written
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls, Mechanism, SaslSettings, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ClusterSecurity",
    "add_cluster_security",
    "add_mirror_security",
    "add_pair_security",
    "cluster_security",
    "listener_tls",
    "to_flag",
]

_MECHANISMS = ", ".join(Mechanism)
_CLUSTER_TLS: Mapping[str, SettingFlag] = {
    "tls-ca": SettingFlag("ca", "FILE", "CA certificates of the brokers (default: the system's)"),
    "tls-cert": SettingFlag("certificate", "FILE", "Shoal's own certificate, for brokers that require one"),
    "tls-key": SettingFlag("key", "FILE", "its key (default: in the same file)"),
    "tls-key-password-file": SettingFlag("key-password", "FILE", "password of an encrypted key"),
    "tls-server-name": SettingFlag(
        "server-name", "NAME", "name that the brokers' certificates must have (default: each broker's host)"
    ),
}
_CLUSTER_SASL: Mapping[str, SettingFlag] = {
    "sasl-mechanism": SettingFlag("mechanism", "NAME", f"how Shoal logs in: {_MECHANISMS} (default: it does not)"),
    "sasl-username": SettingFlag("username", "NAME", "PLAIN and SCRAM: user name"),
    "sasl-password-file": SettingFlag(
        "password", "FILE", "PLAIN and SCRAM: file with the password, or - for standard input"
    ),
    "sasl-token-file": SettingFlag("token", "FILE", "OAUTHBEARER: file with the token, read for each login"),
    "sasl-keytab": SettingFlag("keytab", "FILE", "GSSAPI: keytab"),
    "sasl-principal": SettingFlag("principal", "NAME", "GSSAPI: principal in the keytab"),
    "sasl-region": SettingFlag("region", "NAME", "AWS_MSK_IAM: region of the cluster"),
}
_LISTENER_TLS: Mapping[str, SettingFlag] = {
    "listen-tls-cert": SettingFlag("certificate", "FILE", "Shoal's certificate, then its chain: clients must use TLS"),
    "listen-tls-key": SettingFlag("key", "FILE", "its key (default: in the same file)"),
    "listen-tls-key-password-file": SettingFlag("key-password", "FILE", "password of an encrypted key"),
    "listen-tls-client-ca": SettingFlag("client-ca", "FILE", "CA of client certificates: clients must have one"),
}
_CLUSTER: Mapping[str, tuple[type, Mapping[str, SettingFlag]]] = {
    "tls": (ClusterTls, _CLUSTER_TLS),
    "sasl": (SaslSettings, _CLUSTER_SASL),
}
_STDIN = Path("-")


class ClusterSecurity(NamedTuple):
    tls: ClusterTls | None
    sasl: SaslSettings | None


def add_mirror_security(parser: argparse.ArgumentParser) -> None:
    add_pair_security(parser)
    group = parser.add_argument_group("TLS to the mirror (docs/security.md)")
    for name, flag in _LISTENER_TLS.items():
        add_setting(group, f"--{name}", flag, "listen-tls", ListenerTls)


def add_pair_security(parser: argparse.ArgumentParser) -> None:
    _add_cluster(parser, "source-", "to the source's brokers (for the target: --target-{}-...)")
    _add_cluster(parser, "target-", None)


def add_cluster_security(parser: argparse.ArgumentParser) -> None:
    _add_cluster(parser, "", "to brokers (docs/security.md)")


def _add_cluster(parser: argparse.ArgumentParser, prefix: str, title: str | None) -> None:
    """`title` None: the help does not show the flags."""
    for section, (settings, table) in _CLUSTER.items():
        group = parser if title is None else parser.add_argument_group(f"{section.upper()} {title.format(section)}")
        if section == "tls":
            what = argparse.SUPPRESS if title is None else "the brokers use TLS (further --tls flags imply it)"
            group.add_argument(f"--{prefix}tls", action="store_true", dest=f"{prefix}tls", help=what)
        for name, flag in table.items():
            add_setting(group, f"--{prefix}{name}", flag, f"{prefix}{section}", settings, listed=title is not None)


def cluster_security(flags: argparse.Namespace, prefix: str = "") -> ClusterSecurity:
    """Raises OperatorError."""
    tls, sasl = written(flags, f"{prefix}tls"), written(flags, f"{prefix}sasl")
    if sasl and "mechanism" not in sasl:
        raise OperatorError.of(f"--{prefix}sasl-mechanism", f"is missing: give one of {_MECHANISMS}")
    return ClusterSecurity(
        tls=ClusterTls(**_read(tls)) if tls or getattr(flags, f"{prefix}tls") else None,
        sasl=SaslSettings(**_read(sasl)) if sasl else None,
    )


def listener_tls(flags: argparse.Namespace) -> ListenerTls | None:
    """Raises OperatorError."""
    given = written(flags, "listen-tls")
    if given and "certificate" not in given:
        raise OperatorError.of("--listen-tls-cert", "is missing: TLS to clients needs Shoal's certificate")
    if "client_ca" in given:
        given["client_auth"] = ClientAuth.REQUIRED
    return ListenerTls(**_read(given)) if given else None


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _from_stdin() if value == Secret(file=_STDIN) else value for name, value in fields.items()}


def _from_stdin() -> Secret:
    """The first line of standard input, in a file in memory: each login reads it again."""
    descriptor = os.memfd_create("secret", 0)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, sys.stdin.readline().encode())
    return Secret(file=Path(f"/proc/{os.getpid()}/fd/{descriptor}"))


_KEY = r"(?P<section>tls|sasl)\.(?P<key>[a-z-]+)"
_PLACES = (  # in the file; of a running Shoal
    re.compile(rf"cluster\[(?P<cluster>\d)\]\.{_KEY}\Z"),
    re.compile(rf"cluster '(?P<cluster>\w+)': {_KEY}\Z"),
)
_LISTENER_PLACE = re.compile(r"listener(\[\d\]\.| '\w+': )tls\.(?P<key>[a-z-]+)\Z")
_PREFIXES = {"0": "source-", "1": "target-", "source": "source-", "target": "target-"}


def to_flag(problem: Problem, prefixes: Mapping[str, str] = _PREFIXES) -> Problem:
    """A problem of a key of TLS or SASL, with the flag that sets it. `prefixes`: by index and name of the cluster."""
    for place in _PLACES:
        if match := place.match(problem.where):
            table, prefix = _CLUSTER[match["section"]][1], prefixes.get(match["cluster"])
            return _with_flag(problem, table, match["key"], prefix)
    if match := _LISTENER_PLACE.match(problem.where):
        return _with_flag(problem, _LISTENER_TLS, match["key"], "")
    return problem


def _with_flag(problem: Problem, table: Mapping[str, SettingFlag], key: str, prefix: str | None) -> Problem:
    names = [name for name, flag in table.items() if flag.key == key]
    return problem._replace(where=f"--{prefix}{names[0]}") if names and prefix is not None else problem
