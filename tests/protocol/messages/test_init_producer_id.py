"""Against kio, and against damaged frames."""

from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.init_producer_id import GrantedId, encode_init_producer_id, read_init_producer_id
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.kio_messages import decode_request, response_frame

KEY = 22


@pytest.mark.parametrize("client_id", [None, "connector-producer-1"])
def test_a_request_asks_for_an_id_without_a_transaction(client_id: str | None) -> None:
    header, request = decode_request(encode_init_producer_id(5, client_id), load_request_schema(KEY, 0))
    assert (header.correlation_id, header.client_id) == (5, client_id)
    assert request.transactional_id is None
    assert request.transaction_timeout == timedelta(seconds=60)


def answer(error: ErrorCode, producer_id: int, epoch: int) -> bytes:
    schema: Any = load_response_schema(KEY, 0)
    entity = schema(
        throttle_time=timedelta(milliseconds=7), error_code=error, producer_id=producer_id, producer_epoch=epoch
    )
    return response_frame(entity, 5)


def test_an_answer_grants_an_id_or_says_why_not() -> None:
    assert read_init_producer_id(answer(ErrorCode.none, 4711, 0)) == GrantedId(0, 4711, 0)
    refused = answer(ErrorCode.cluster_authorization_failed, -1, -1)
    assert read_init_producer_id(refused) == GrantedId(31, -1, -1)


def test_a_cut_answer_is_damage() -> None:
    whole = answer(ErrorCode.none, 4711, 0)
    for end in range(8, len(whole)):
        with pytest.raises(RemoteProtocolError):
            read_init_producer_id(whole[:end])
