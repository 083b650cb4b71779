"""Combinations of the keys of Shoal's own credentials that cannot work. Files are read later (`net/auth/make.py`)."""

from __future__ import annotations

import dataclasses
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.protocol.sasl.oauth import bad_extension
from shoal.proxy.config.problems import Problem
from shoal.proxy.config.rules.security import secret_problem
from shoal.proxy.config.security import Mechanism, SaslSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.settings import Settings

__all__ = ["check_cluster_sasl", "url_problem"]

_PASSWORD = frozenset({"username", "password"})
_BEARER = frozenset({"token", "token_command", "token_endpoint", "extensions"})
_ENDPOINT = frozenset({"token_endpoint_ca", "client_id", "client_secret", "scope"})
_NEEDED = {
    Mechanism.PLAIN: _PASSWORD,
    Mechanism.SCRAM_SHA_256: _PASSWORD,
    Mechanism.SCRAM_SHA_512: _PASSWORD,
    Mechanism.GSSAPI: frozenset({"keytab", "principal"}),
    Mechanism.AWS_MSK_IAM: frozenset({"region"}),
}
_PERMITTED = {
    **_NEEDED,
    Mechanism.OAUTHBEARER: _BEARER | _ENDPOINT,
    Mechanism.GSSAPI: frozenset({"keytab", "principal", "service"}),
    Mechanism.AWS_MSK_IAM: frozenset({"region", "profile", "role_arn"}),
}
_ALWAYS = frozenset({"mechanism", "name"})
_SOURCES = ("token", "token_command", "token_endpoint")


def check_cluster_sasl(settings: Settings) -> Iterator[Problem]:
    for index, cluster in enumerate(settings.clusters):
        if cluster.sasl is not None:
            yield from _sasl(cluster.sasl, f"cluster[{index}].sasl")
        names = [named.name for named in cluster.credentials]
        for number, named in enumerate(cluster.credentials):
            where = f"cluster[{index}].credentials[{number}]"
            yield from _sasl(named, where)
            if named.name in names[:number]:
                yield Problem(f"{where}.name", f'"{named.name}" is there twice: names must differ')


def _sasl(sasl: SaslSettings, where: str) -> Iterator[Problem]:
    for key, what in (*_mechanism_keys(sasl), *_token_source(sasl), *_values(sasl)):
        yield Problem(f"{where}.{key.replace('_', '-')}", what)


def _mechanism_keys(sasl: SaslSettings) -> Iterator[tuple[str, str]]:
    given = {
        field.name
        for field in dataclasses.fields(sasl)
        if field.name not in _ALWAYS and getattr(sasl, field.name) != field.default
    }
    for key in sorted(_NEEDED.get(sasl.mechanism, frozenset()) - given):
        yield key, f'is missing: mechanism = "{sasl.mechanism}" needs it'
    for key in sorted(given - _PERMITTED[sasl.mechanism]):
        yield key, f'has no effect with mechanism = "{sasl.mechanism}": remove it'


def _token_source(sasl: SaslSettings) -> Iterator[tuple[str, str]]:
    if sasl.mechanism is not Mechanism.OAUTHBEARER:
        return
    sources = [key for key in _SOURCES if getattr(sasl, key)]
    if len(sources) != 1:
        yield sources[0] if sources else "token", "one of token, token-command and token-endpoint is needed, not more"
    for key in ("client_id", "client_secret") if "token_endpoint" in sources else ():
        if getattr(sasl, key) is None:
            yield key, "is missing: token-endpoint needs it"
    if sasl.token_endpoint is None:
        for key in sorted(_ENDPOINT):
            if getattr(sasl, key) is not None:
                yield key, "has no effect without token-endpoint: remove it"
    elif problem := url_problem(sasl.token_endpoint):
        yield "token_endpoint", problem


def _values(sasl: SaslSettings) -> Iterator[tuple[str, str]]:
    for key in ("password", "token", "client_secret"):
        secret = getattr(sasl, key)
        if secret is not None and (problem := secret_problem(secret)):
            yield key, problem
    for name, value in (sasl.extensions or {}).items():
        if problem := bad_extension(name, value):
            yield "extensions", problem
    if "\0" in (sasl.username or ""):
        yield "username", "has a NUL character, which SASL PLAIN cannot carry"
    if sasl.profile is not None and sasl.role_arn is not None:
        yield "role_arn", "and profile exclude each other: remove one (a profile may name a role)"


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of an issuer: secrets and keys must not pass a network without TLS."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is no URL: write https://host/path"
    if parts.username is not None or parts.password is not None:
        return "has a user name or a password in it: write them as client-id and client-secret"
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        return "needs https: only a loopback address may have http"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
