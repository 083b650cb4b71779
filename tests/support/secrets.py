"""Secrets for tests, in files that only this user can read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.protocol.sasl.scram import DIGESTS
from shoal.protocol.sasl.users import Users, hash_password, write_users
from shoal.proxy.config.security import Mechanism, SaslSettings, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PASSWORDS", "in_memory", "password_login", "users_file"]

PASSWORDS = {"alice": "a-secret-word", "bob": "another-word"}


def in_memory(text: str) -> Secret:
    """A file without a name, for as long as this process lives."""
    descriptor = os.memfd_create("secret", 0)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text.encode())
    return Secret(file=Path(f"/proc/{os.getpid()}/fd/{descriptor}"))


def password_login(username: str, password: str, mechanism: str = "PLAIN") -> SaslSettings:
    return SaslSettings(mechanism=Mechanism(mechanism), username=username, password=in_memory(password))


def users_file(path: Path, passwords: Mapping[str, str] = PASSWORDS) -> Path:
    """The users who may log in at Shoal."""
    hashes = {
        name: {one: hash_password(one, word, name.encode(), 4096) for one in DIGESTS}
        for name, word in passwords.items()
    }
    path.write_text(write_users(Users(seed=bytes(32), hashes=hashes)))
    path.chmod(0o600)
    return path
