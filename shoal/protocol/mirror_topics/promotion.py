"""IncrementalAlterConfigs v1: promotes topics by one key each of the cluster-wide dynamic broker config.

Only these keys are set (KIP-339). AlterConfigs replaces all keys, and brokers show no values of keys that they do not
know, so it could not keep the others.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["encode_promotion", "promotion_key", "read_promotion", "uuid_text"]

_VERSION: Final = 1
_BROKER: Final = 4  # ConfigResource.Type
_ALL_BROKERS: Final = ""
_SET: Final = 0  # AlterConfigOp.OpType
_PREFIX: Final = "shoal.mirror.promoted."

_RESPONSE = Walkers(
    MESSAGES["IncrementalAlterConfigsResponse"],
    (),
    Rows("Responses", ("ErrorCode", "ErrorMessage", "ResourceType", "ResourceName")),
)


def promotion_key(topic: str) -> str:
    return _PREFIX + topic


def uuid_text(topic_id: bytes) -> str:
    """As Kafka prints it (`Uuid.toString`)."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def encode_promotion(client_id: str, topic_ids: Mapping[str, bytes], *, validate_only: bool) -> bytes:
    """A request frame: all of these topics or none."""
    configs = [
        {"Name": promotion_key(topic), "ConfigOperation": _SET, "Value": uuid_text(topic_id)}
        for topic, topic_id in topic_ids.items()
    ]
    resource = {"ResourceType": _BROKER, "ResourceName": _ALL_BROKERS, "Configs": configs}
    values = {"Resources": [resource], "ValidateOnly": validate_only}
    return request_frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, _VERSION, 0, client_id, values)


def read_promotion(frame: Buffer) -> tuple[int, str]:
    """A whole answer frame: error code and message. Raises RemoteProtocolError."""
    body = response_body(frame, ApiKey.INCREMENTAL_ALTER_CONFIGS, _VERSION)
    (rows,) = _RESPONSE[_VERSION](frame, body, len(frame))
    if len(rows) != 1 or rows[0][2:] != (_BROKER, _ALL_BROKERS):
        raise RemoteProtocolError("the answer to IncrementalAlterConfigs is not about the brokers' config")
    error_code, message, _, _ = rows[0]
    return error_code, message or ""
