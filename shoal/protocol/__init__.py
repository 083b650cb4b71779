"""Kafka's wire protocol and Shoal's rules, without I/O: bytes in, values out. No sockets, no clock (`now` is an
argument).

    wire -> schema -> records -> messages | transform -> sasl
      -> shallow | coalesce | multibatch | mirror_topics | legacy | capture

`wire` has the primitive types and errors, `schema` the message tables and the code generated from them, `records`
the record batches, `messages` the requests and answers that Shoal reads or writes, `transform` the edits that every
listener makes, `sasl` logins. Each feature is a package of its own and imports no other feature. Bytes from the network
raise `RemoteProtocolError` and nothing else.

The names below are the public ones. A name's module is imported when the name is first used, so that a command that
needs none of the codecs does not load them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.protocol.coalesce.policy import CoalescingPolicy as CoalescingPolicy
    from shoal.protocol.coalesce.policy import JoinLimits as JoinLimits
    from shoal.protocol.messages.fetch import FetchedPartition as FetchedPartition
    from shoal.protocol.messages.fetch import FetchRequest as FetchRequest
    from shoal.protocol.messages.fetch import FetchResponse as FetchResponse
    from shoal.protocol.messages.fetch import read_fetch_request as read_fetch_request
    from shoal.protocol.messages.fetch import read_fetch_response as read_fetch_response
    from shoal.protocol.messages.fetch import replace_record_sets as replace_record_sets
    from shoal.protocol.messages.metadata import MetadataResponse as MetadataResponse
    from shoal.protocol.messages.metadata import read_metadata_response as read_metadata_response
    from shoal.protocol.messages.produce import ProduceRequest as ProduceRequest
    from shoal.protocol.messages.produce import ProduceResponse as ProduceResponse
    from shoal.protocol.messages.produce import encode_produce_request as encode_produce_request
    from shoal.protocol.messages.produce import read_produce_request as read_produce_request
    from shoal.protocol.messages.produce import read_produce_response as read_produce_response
    from shoal.protocol.records.batch import BatchHeader as BatchHeader
    from shoal.protocol.records.batch import NewRecord as NewRecord
    from shoal.protocol.records.batch import encode_batch as encode_batch
    from shoal.protocol.records.batch import open_batch as open_batch
    from shoal.protocol.records.batch import read_batch_header as read_batch_header
    from shoal.protocol.records.record import Record as Record
    from shoal.protocol.records.record import read_records as read_records
    from shoal.protocol.records.recordset import RecordSet as RecordSet
    from shoal.protocol.records.recordset import entries as entries
    from shoal.protocol.records.recordset import split as split
    from shoal.protocol.records.scan import ScannedSet as ScannedSet
    from shoal.protocol.records.scan import scan as scan
    from shoal.protocol.schema.api import API as API
    from shoal.protocol.schema.api import ApiKey as ApiKey
    from shoal.protocol.schema.composer import compose as compose
    from shoal.protocol.schema.decomposer import decompose as decompose
    from shoal.protocol.schema.headers import RequestHeader as RequestHeader
    from shoal.protocol.schema.headers import read_request_header as read_request_header
    from shoal.protocol.schema.headers import response_body as response_body
    from shoal.protocol.schema.tables import MESSAGES as MESSAGES
    from shoal.protocol.shallow.envelope import EnvelopeKey as EnvelopeKey
    from shoal.protocol.shallow.envelope import decode_key as decode_key
    from shoal.protocol.shallow.envelope import encode_key as encode_key
    from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set as plan_record_set
    from shoal.protocol.shallow.wrap.wrap import WrapContext as WrapContext
    from shoal.protocol.shallow.wrap.wrap import wrap as wrap
    from shoal.protocol.wire.compression import Codec as Codec
    from shoal.protocol.wire.compression import compress as compress
    from shoal.protocol.wire.compression import decompress as decompress
    from shoal.protocol.wire.crc import crc32c as crc32c
    from shoal.protocol.wire.error_codes import ErrorCode as ErrorCode
    from shoal.protocol.wire.error_codes import error_name as error_name
    from shoal.protocol.wire.errors import LocalProtocolError as LocalProtocolError
    from shoal.protocol.wire.errors import ProtocolError as ProtocolError
    from shoal.protocol.wire.errors import RemoteProtocolError as RemoteProtocolError
    from shoal.protocol.wire.errors import UnsupportedVersion as UnsupportedVersion
    from shoal.protocol.wire.framing import check_frame_size as check_frame_size
    from shoal.protocol.wire.splice import Edit as Edit
    from shoal.protocol.wire.splice import splice as splice
    from shoal.protocol.wire.types import Topic as Topic
    from shoal.protocol.wire.types import TopicPartition as TopicPartition

_PUBLIC = {
    "wire.types": "Topic TopicPartition",
    "wire.errors": "LocalProtocolError ProtocolError RemoteProtocolError UnsupportedVersion",
    "wire.error_codes": "ErrorCode error_name",
    "wire.framing": "check_frame_size",
    "wire.splice": "Edit splice",
    "wire.crc": "crc32c",
    "wire.compression": "Codec compress decompress",
    "schema.api": "API ApiKey",
    "schema.tables": "MESSAGES",
    "schema.headers": "RequestHeader read_request_header response_body",
    "schema.composer": "compose",
    "schema.decomposer": "decompose",
    "records.recordset": "RecordSet entries split",
    "records.batch": "BatchHeader NewRecord encode_batch open_batch read_batch_header",
    "records.record": "Record read_records",
    "records.scan": "ScannedSet scan",
    "messages.fetch": "FetchRequest FetchResponse FetchedPartition read_fetch_request read_fetch_response"
    " replace_record_sets",
    "messages.produce": "ProduceRequest ProduceResponse encode_produce_request read_produce_request"
    " read_produce_response",
    "messages.metadata": "MetadataResponse read_metadata_response",
    "shallow.envelope": "EnvelopeKey decode_key encode_key",
    "shallow.wrap.wrap": "WrapContext wrap",
    "shallow.unwrap.plan_record_set": "plan_record_set",
    "coalesce.policy": "CoalescingPolicy JoinLimits",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
