"""Sets of (API key, version) as the bits of one integer, and which of them brokers of Kafka 4 refuse (KIP-896).

Bit `32 * key + version`. The set of an ordinary client takes some 150 bytes, and the largest one 570; two are joined by
`|`. What no API has (`key` from 127 on, `version` from 32 on, negative ones) is bit `OTHERS`.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from shoal.protocol.schema.api import API, ApiKey

__all__ = ["OLDEST_IN_KAFKA_4", "OTHERS", "Versions", "as_set", "members", "ranges", "refused_by_kafka_4"]

_VERSIONS: Final = 32  # of an API; Fetch has 19
_KEYS: Final = 127

OTHERS: Final = 1 << (_VERSIONS * _KEYS)

_NONE: Final = _VERSIONS  # no version is left

OLDEST_IN_KAFKA_4: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 3,
        ApiKey.FETCH: 4,
        ApiKey.LIST_OFFSETS: 1,
        ApiKey.LEADER_AND_ISR: _NONE,
        ApiKey.STOP_REPLICA: _NONE,
        ApiKey.UPDATE_METADATA: _NONE,
        ApiKey.CONTROLLED_SHUTDOWN: _NONE,
        ApiKey.OFFSET_COMMIT: 2,
        ApiKey.OFFSET_FETCH: 1,
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.DESCRIBE_ACLS: 1,
        ApiKey.CREATE_ACLS: 1,
        ApiKey.DELETE_ACLS: 1,
        ApiKey.DESCRIBE_CONFIGS: 1,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.CREATE_DELEGATION_TOKEN: 1,
        ApiKey.RENEW_DELEGATION_TOKEN: 1,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
        ApiKey.ALTER_PARTITION: 2,
        ApiKey.SHARE_GROUP_HEARTBEAT: 1,
        ApiKey.SHARE_GROUP_DESCRIBE: 1,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
    }
)
"""API -> the oldest version that brokers take; 0 if it is not listed. Source: the message schemas of Kafka 4.3."""


class Versions(NamedTuple):
    """Versions of one API. The name of an unknown API is its number."""

    api: str
    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.api} v{self.oldest}" + (f"-v{self.newest}" if self.newest > self.oldest else "")


def as_set(key: int, version: int) -> int:
    """The set of this one."""
    return 1 << (_VERSIONS * key + version) if 0 <= key < _KEYS and 0 <= version < _VERSIONS else OTHERS


def members(used: int) -> Iterator[tuple[int, int]]:
    """(key, version) in order; without `OTHERS`."""
    rest = used & ~OTHERS
    while rest:
        lowest = rest & -rest
        yield divmod(lowest.bit_length() - 1, _VERSIONS)
        rest ^= lowest


def ranges(used: int) -> list[Versions]:
    """By API key; without `OTHERS`."""
    found: dict[int, Versions] = {}
    for key, version in members(used):
        before = found.get(key)
        found[key] = Versions(_name(key), version if before is None else before.oldest, version)
    return list(found.values())


def _name(key: int) -> str:
    return API[key].name if key in API else str(key)


_REFUSED: Final = sum(as_set(key, version) for key, oldest in OLDEST_IN_KAFKA_4.items() for version in range(oldest))


def refused_by_kafka_4(used: int) -> int:
    """Those that brokers of Kafka 4 refuse. 0: none."""
    return used & _REFUSED
