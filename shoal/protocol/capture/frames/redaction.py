"""Removes from raw captures credentials, and data from which they can be guessed.

The table lists what is cut, and why. A cut frame keeps its header (API, version, correlation id, client id), so
Wireshark still shows that it was sent; nothing of its body is written, not even its length, which for SASL PLAIN
reveals that of the password. Unknown frames are withheld entirely: an API or version that Kafka 4.3 does not have, an
answer without a request, and SASL tokens after SaslHandshake v0, which have no Kafka header.

Checked and not cut: SaslHandshake (names of mechanisms), DescribeUserScramCredentials (mechanism and iterations),
CreateTopics and DescribeTopicPartitions (topic settings are no credentials), ListConfigResources (names), PushTelemetry
(metrics), JoinGroup and SyncGroup (data that group members exchange). Records are not cut: operators must know what
they capture.
"""

from collections.abc import Mapping
from enum import Flag, auto
from types import MappingProxyType
from typing import Final

from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import read_request_header, write_request_header, write_response_header
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import write_int32

__all__ = ["WITHHELD", "ExchangePart", "cut_answer", "cut_request", "is_known", "withheld_because"]


class ExchangePart(Flag):
    REQUEST = auto()
    ANSWER = auto()
    BOTH = REQUEST | ANSWER


WITHHELD: Final[Mapping[int, tuple[ExchangePart, str]]] = MappingProxyType(
    {
        ApiKey.SASL_AUTHENTICATE: (ExchangePart.BOTH, "passwords of PLAIN, proofs of SCRAM, tokens of OAUTHBEARER"),
        ApiKey.CREATE_DELEGATION_TOKEN: (ExchangePart.ANSWER, "the token's HMAC logs in as its owner"),
        ApiKey.RENEW_DELEGATION_TOKEN: (ExchangePart.REQUEST, "the token's HMAC"),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (ExchangePart.REQUEST, "the token's HMAC"),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (ExchangePart.ANSWER, "HMACs of tokens"),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (ExchangePart.REQUEST, "salted passwords"),
        ApiKey.ALTER_CONFIGS: (ExchangePart.REQUEST, "values of settings: passwords of key stores, JAAS lines"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            ExchangePart.REQUEST,
            "values of settings: passwords of key stores, JAAS lines",
        ),
        ApiKey.DESCRIBE_CONFIGS: (
            ExchangePart.ANSWER,
            "values of settings: a broker hides only those that it knows to be secret",
        ),
        ApiKey.ENVELOPE: (ExchangePart.BOTH, "a request of any API inside another, and who sent it"),
        ApiKey.FETCH_SNAPSHOT: (
            ExchangePart.ANSWER,
            "the cluster's metadata hold SCRAM credentials, HMACs and settings",
        ),
    }
)
_NEWEST: Final = 31
"""Higher than all versions in Kafka 4.3; the first bytes of other data are rarely a lower number."""
_UNKNOWN: Final = "not known to this version of Shoal, so it may hold credentials"


def is_known(api_key: int, api_version: int) -> bool:
    api = API.get(api_key)
    return api is not None and 0 <= api_version <= (_NEWEST if api.newest is None else api.newest)


def withheld_because(api_key: int, api_version: int, part: ExchangePart) -> str | None:
    """Why this part of an exchange is not written, or None."""
    if not is_known(api_key, api_version):
        return f"withheld: {_UNKNOWN}"
    found = WITHHELD.get(api_key)
    return f"withheld: {found[1]}" if found is not None and part in found[0] else None


def cut_request(frame: bytes) -> bytes:
    """Its header as a frame; empty if it is unknown."""
    try:
        header = read_request_header(frame)
    except RemoteProtocolError:
        return b""
    if not is_known(header.api_key, header.api_version):
        return b""
    return _sized(write_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id))


def cut_answer(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Its header as a frame; empty if it is unknown."""
    return (
        _sized(write_response_header(api_key, api_version, correlation_id)) if is_known(api_key, api_version) else b""
    )


def _sized(header: bytes) -> bytes:
    return write_int32(len(header)) + header
