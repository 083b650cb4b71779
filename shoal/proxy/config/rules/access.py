"""Rules for `[listener.access]` and `proxy-protocol`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.config.security import ClientAuth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["access_problems"]

_LEAST_RATE = 1024  # bytes per second; a request would take longer than clients wait


def access_problems(settings: Settings) -> Iterator[tuple[int, str, str]]:
    """(index of the listener, key, what is wrong)."""
    for index, listener in enumerate(settings.listeners):
        for key, what in (*_numbers(listener), *_principals(listener), *_balancers(listener)):
            yield index, key, what


def _numbers(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    access = listener.access
    above_zero = {
        "connections-per-address": access.connections_per_address,
        "new-connections-per-second": access.new_connections_per_second,
    }
    for key, value in above_zero.items():
        if value is not None and not value > 0:  # nan is not above 0
            yield f"access.{key}", f"{value} is too small: it must be above 0; without the key there is no limit"
    rates = {"bytes-per-second": access.bytes_per_second, "client-bytes-per-second": access.client_bytes_per_second}
    for key, rate in rates.items():
        if rate is not None and rate < _LEAST_RATE:
            yield f"access.{key}", f"{rate} is too small: at least {_LEAST_RATE}; without the key there is no limit"


def _principals(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    has_certificates = listener.tls is not None and listener.tls.client_auth is not ClientAuth.NONE
    if listener.access.principals and listener.sasl is None and not has_certificates:
        yield (
            "access.principals",
            "lets no client in, because clients have no names: let them log in ([listener.sasl]) or show a certificate "
            '(client-auth = "required" under [listener.tls]), or remove it',
        )


def _balancers(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    for network in listener.proxy_protocol:
        if network.prefixlen == 0:
            what = f"{network} trusts every client to name its own address: write the networks of the load balancers"
            yield "proxy-protocol", what
