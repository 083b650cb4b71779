"""Rules for `[listener.sasl]` and `[listener.principals]`: clients that log in at Shoal."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.command_line import did_you_mean, listed
from shoal.proxy.config.security import ClientAuth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.security import ListenerSasl
    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["login_problems"]

_LEAST_SESSION = 5.0  # seconds; clients log in again after 85 to 95 % of it
_BEARER = "OAUTHBEARER"


def login_problems(settings: Settings) -> Iterator[tuple[int, str, str]]:
    """(index of the listener, key, what is wrong)."""
    credentials = {cluster.name: [login.name for login in cluster.credentials] for cluster in settings.clusters}
    for index, listener in enumerate(settings.listeners):
        found = [*_principals(listener, credentials.get(listener.cluster, []))]
        if listener.sasl is not None:
            found += [*_mechanisms(listener.sasl), *_tokens(listener.sasl)]
        yield from ((index, key, what) for key, what in found)


def _mechanisms(sasl: ListenerSasl) -> Iterator[tuple[str, str]]:
    with_passwords = [mechanism for mechanism in sasl.mechanisms if mechanism != _BEARER]
    if not sasl.mechanisms:
        yield "sasl.mechanisms", 'is empty: name at least one, for example ["SCRAM-SHA-512"]'
    if with_passwords and sasl.users is None:
        yield "sasl.users", f"is missing: {listed(with_passwords)} needs a file of users (shoal users add FILE NAME)"
    if sasl.users is not None and sasl.mechanisms and not with_passwords:
        yield "sasl.users", "has no effect: OAUTHBEARER has no users; add SCRAM-SHA-512 to mechanisms, or remove it"
    if sasl.session_seconds is not None and not sasl.session_seconds >= _LEAST_SESSION:
        yield "sasl.session-seconds", f"{sasl.session_seconds} is too small: at least {_LEAST_SESSION:g}"


def _tokens(sasl: ListenerSasl) -> Iterator[tuple[str, str]]:
    of_tokens = {
        "jwks": sasl.jwks,
        "jwks-endpoint": sasl.jwks_endpoint,
        "jwks-endpoint-ca": sasl.jwks_endpoint_ca,
        "issuer": sasl.issuer,
        "audience": sasl.audience,
    }
    if _BEARER not in sasl.mechanisms:
        for key, value in of_tokens.items():
            if value is not None:
                yield f"sasl.{key}", "has no effect: add OAUTHBEARER to mechanisms, or remove it"
        return
    if (sasl.jwks is None) == (sasl.jwks_endpoint is None):
        yield "sasl.jwks", "OAUTHBEARER needs the issuer's keys: set jwks (a file) or jwks-endpoint, not both"
    if sasl.jwks_endpoint_ca is not None and sasl.jwks_endpoint is None:
        yield "sasl.jwks-endpoint-ca", "has no effect without jwks-endpoint"
    if sasl.issuer is None:
        yield "sasl.issuer", "is missing: the iss claim that tokens must have"
    if sasl.audience is None:
        yield "sasl.audience", "is missing: without it, a token that the issuer made for any other service would do"
    if sasl.jwks_endpoint is not None and not _is_safe(sasl.jwks_endpoint):
        what = "is not https://...: the keys could be replaced on their way (http only to a loopback address)"
        yield "sasl.jwks-endpoint", what
    elif sasl.jwks_endpoint is not None and "@" in urlsplit(sasl.jwks_endpoint).netloc:
        yield "sasl.jwks-endpoint", "has a user name or a password in it: the keys of an issuer are public"


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    try:
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


def _principals(listener: ListenerSettings, credentials: list[str]) -> Iterator[tuple[str, str]]:
    for principal, name in listener.principals.items():
        if name not in credentials:
            known = f"known: {listed(credentials)}" if credentials else "write a [[cluster.credentials]] table"
            hint = did_you_mean(name, credentials)
            what = f'the cluster "{listener.cluster}" has no credentials "{name}"; {hint}{known}'
            yield f"principals.{principal}", what
    has_certificates = listener.tls is not None and listener.tls.client_auth is not ClientAuth.NONE
    if listener.principals and listener.sasl is None and not has_certificates and set(listener.principals) != {"*"}:
        what = (
            "no client has a principal here: let clients log in ([listener.sasl]) or show certificates "
            '(client-auth in [listener.tls]), or map only "*"'
        )
        yield "principals", what
