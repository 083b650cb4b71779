"""Secrets for tests, in files that only this user can read."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.proxy.config.security import Mechanism, SaslSettings, Secret

__all__ = ["in_memory", "password_login"]


def in_memory(text: str) -> Secret:
    """A file without a name, for as long as this process lives."""
    descriptor = os.memfd_create("secret", 0)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text.encode())
    return Secret(file=Path(f"/proc/{os.getpid()}/fd/{descriptor}"))


def password_login(username: str, password: str, mechanism: str = "PLAIN") -> SaslSettings:
    return SaslSettings(mechanism=Mechanism(mechanism), username=username, password=in_memory(password))
