"""The users file of a listener where clients log in: salted hashes, no passwords.

    shoal-users-1 <seed>
    <name> SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey> SCRAM-SHA-512$...

A hash has the form of RFC 5803; bytes are base64; a name is percent-encoded where it has spaces and the like. StoredKey
and ServerKey are those of RFC 5802, so the same line serves SCRAM and, as a salted hash, PLAIN. From the `seed` come
the salts of unknown users: always the same for one name, also after a restart, so that a stranger cannot tell who is a
user. Empty lines, and lines that begin with `#`, are ignored.

Names and passwords are used unchanged, as Kafka does (`ScramFormatter.normalize`).
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from shoal.protocol.sasl.scram import DIGESTS, LEAST_ITERATIONS, MOST_ITERATIONS, derive

__all__ = [
    "DEFAULT_ITERATIONS",
    "SALT_BYTES",
    "SEED_BYTES",
    "BadUsers",
    "ScramHash",
    "Users",
    "check_name",
    "hash_password",
    "read_users",
    "write_users",
]

DEFAULT_ITERATIONS: Final = 8192  # a PLAIN login costs Shoal some 3 ms with them
SALT_BYTES: Final = 24
SEED_BYTES: Final = 32
_KEY_BYTES: Final = {mechanism: hashlib.new(digest).digest_size for mechanism, digest in DIGESTS.items()}
_MOST_USERS: Final = 20_000  # they are read in half a second
_MOST_NAME: Final = 255
_HEADER: Final = "shoal-users-1"
_UNQUOTED: Final = "@+,=/:"  # besides letters, digits, and "_.-~"


class BadUsers(ValueError):
    """The text is not that of a users file; the message names the line, and never its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramHash:
    """One user's keys for one mechanism."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def hash_password(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramHash:
    digest = DIGESTS[mechanism]
    salted = derive(digest, password, salt, iterations)
    return ScramHash(
        iterations=iterations,
        salt=salt,
        stored_key=hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    seed: bytes = field(repr=False)
    hashes: Mapping[str, Mapping[str, ScramHash]] = field(repr=False)  # name -> mechanism -> hash
    _iterations: Mapping[str, int] = field(init=False, repr=False, compare=False)  # of most users, by mechanism

    def __post_init__(self) -> None:
        object.__setattr__(self, "_iterations", {digest: self._usual_iterations(digest) for digest in DIGESTS})

    def __len__(self) -> int:
        return len(self.hashes)

    def _usual_iterations(self, mechanism: str) -> int:
        used = Counter(of_user[mechanism].iterations for of_user in self.hashes.values() if mechanism in of_user)
        return used.most_common(1)[0][0] if used else DEFAULT_ITERATIONS

    def find(self, name: str, mechanism: str) -> tuple[ScramHash, bool]:
        """-> the hash, and whether it is a user's. An unknown user gets one that no password fits, in the same time."""
        decoy = self._decoy(name, mechanism)
        known = self.hashes.get(name, {}).get(mechanism)
        return (decoy, False) if known is None else (known, True)

    def accepts(self, name: str, password: str) -> bool:
        """Whether it is this user's password. Takes milliseconds, as long for an unknown user."""
        of_user = self.hashes.get(name, {})
        mechanism = next((digest for digest in DIGESTS if digest in of_user), next(iter(DIGESTS)))
        known, is_user = self.find(name, mechanism)
        tried = hash_password(mechanism, password, known.salt, known.iterations)
        return hmac.compare_digest(tried.stored_key, known.stored_key) and is_user

    def _decoy(self, name: str, mechanism: str) -> ScramHash:
        def derived(what: str, size: int) -> bytes:
            return hmac.digest(self.seed, f"{mechanism} {what} {name}".encode(), "sha512")[:size]

        size = _KEY_BYTES[mechanism]
        return ScramHash(
            iterations=self._iterations[mechanism],
            salt=derived("salt", SALT_BYTES),
            stored_key=derived("stored", size),
            server_key=derived("server", size),
        )


def check_name(name: str) -> str:
    """The name itself. Raises ValueError."""
    if not name or len(name) > _MOST_NAME:
        raise ValueError(f"a user name has 1 to {_MOST_NAME} characters, not {len(name)}")
    if not name.isprintable():
        raise ValueError("a user name has no control characters")
    return name


def read_users(text: str) -> Users:
    """Raises BadUsers."""
    lines = [
        (number, line.split())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines or len(lines[0][1]) != 2 or lines[0][1][0] != _HEADER:
        raise BadUsers(f'the first line does not begin with "{_HEADER}": it is not a file of shoal users add')
    if len(lines) > _MOST_USERS:
        raise BadUsers(f"it has more than {_MOST_USERS} lines")
    hashes: dict[str, Mapping[str, ScramHash]] = {}
    for number, (name, *written) in lines[1:]:
        try:
            user = check_name(unquote(name, errors="strict"))
            of_user = dict(map(_read_hash, written))
        except ValueError:
            raise BadUsers(f"line {number} is not a line of shoal users add") from None
        if user in hashes or not of_user:
            raise BadUsers(f"line {number} " + ("has no hash" if not of_user else "repeats a user"))
        hashes[user] = of_user
    return Users(seed=_seed(lines[0][1][1]), hashes=hashes)


def _seed(written: str) -> bytes:
    try:
        seed = b64decode(written, validate=True)
    except ValueError:
        seed = b""
    if len(seed) < SEED_BYTES:
        raise BadUsers("the seed in the first line is damaged")
    return seed


def write_users(users: Users) -> str:
    return "".join(f"{line}\n" for line in _lines(users))


def _lines(users: Users) -> Iterator[str]:
    yield f"{_HEADER} {b64encode(users.seed).decode()}"
    for name, of_user in sorted(users.hashes.items()):
        yield " ".join([quote(name, safe=_UNQUOTED), *(_write_hash(*item) for item in of_user.items())])


def _write_hash(mechanism: str, one: ScramHash) -> str:
    salt, stored, server = (b64encode(part).decode() for part in (one.salt, one.stored_key, one.server_key))
    return f"{mechanism}${one.iterations}:{salt}${stored}:{server}"


def _read_hash(written: str) -> tuple[str, ScramHash]:
    """Raises ValueError."""
    mechanism, first, second = written.split("$")
    (iterations, salt), (stored, server) = first.split(":"), second.split(":")
    size = _KEY_BYTES.get(mechanism)
    one = ScramHash(
        iterations=int(iterations),
        salt=b64decode(salt, validate=True),
        stored_key=b64decode(stored, validate=True),
        server_key=b64decode(server, validate=True),
    )
    whole = len(one.stored_key) == len(one.server_key) == size and one.salt
    if not whole or not LEAST_ITERATIONS <= one.iterations <= MOST_ITERATIONS:
        raise ValueError("not a hash")
    return mechanism, one
