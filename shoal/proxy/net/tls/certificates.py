"""What logs and errors say of a certificate."""

from __future__ import annotations

import time
from typing import NamedTuple

__all__ = ["Certificate", "covers", "date", "is_early", "time_problem"]


class Certificate(NamedTuple):
    """`names`: the host names and addresses that it is valid for. Dates are seconds since 1970."""

    subject: str  # "CN=broker-1,O=Example" (RFC 4514)
    issuer: str
    names: tuple[str, ...]
    not_before: float
    not_after: float
    public_key: bytes
    purposes: tuple[str, ...] | None  # None: all
    der: bytes

    def __str__(self) -> str:
        return f"{self.subject or '(no subject)'} (for {', '.join(self.names)})" if self.names else self.subject


def covers(certificate: Certificate, host: str) -> bool:
    """Whether clients accept the certificate for this name or address; `*` stands for one label."""
    host = host.lower()
    names = {name.lower() for name in certificate.names}
    return host in names or f"*.{host.partition('.')[2]}" in names


def date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def is_early(certificate: Certificate, now: float) -> bool:
    return certificate.not_before > now


def time_problem(certificate: Certificate, now: float) -> str | None:
    """Expired, or not yet valid."""
    if certificate.not_after < now:
        return f"{certificate.subject} expired on {date(certificate.not_after)}: renew it"
    if is_early(certificate, now):
        return (
            f"{certificate.subject} is not valid before {date(certificate.not_before)}: use another certificate, or "
            "correct this machine's clock"
        )
    return None
