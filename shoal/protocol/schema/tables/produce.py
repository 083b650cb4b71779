"""Produce and InitProducerId; 4.x brokers support Produce versions 3-13 (and advertise 0-2), 3.9 also 0-2."""

from shoal.protocol.schema.language import parse_message

PRODUCE_REQUEST = parse_message("""\
ProduceRequest: versions 0-13, flexible 9+
TransactionalId: string, versions 3+, nullable
Acks: int16
TimeoutMs: int32
TopicData: []struct
  Name: string, versions 0-12
  TopicId: uuid, versions 13+
  PartitionData: []struct
    Index: int32
    Records: records, nullable
""")

PRODUCE_RESPONSE = parse_message("""\
ProduceResponse: versions 0-13, flexible 9+
Responses: []struct
  Name: string, versions 0-12
  TopicId: uuid, versions 13+
  PartitionResponses: []struct
    Index: int32
    ErrorCode: int16
    BaseOffset: int64
    LogAppendTimeMs: int64, versions 2+
    LogStartOffset: int64, versions 5+
    RecordErrors: []struct, versions 8+
      BatchIndex: int32
      BatchIndexErrorMessage: string, nullable
    ErrorMessage: string, versions 8+, nullable
    CurrentLeader: struct, versions 10+, tag 0
      LeaderId: int32
      LeaderEpoch: int32
ThrottleTimeMs: int32, versions 1+
NodeEndpoints: []struct, versions 10+, tag 0
  NodeId: int32
  Host: string
  Port: int32
  Rack: string, nullable
""")

INIT_PRODUCER_ID_REQUEST = parse_message("""\
InitProducerIdRequest: versions 0-6, flexible 2+
TransactionalId: string, nullable
TransactionTimeoutMs: int32
ProducerId: int64, versions 3+
ProducerEpoch: int16, versions 3+
Enable2Pc: bool, versions 6+
KeepPreparedTxn: bool, versions 6+
""")

INIT_PRODUCER_ID_RESPONSE = parse_message("""\
InitProducerIdResponse: versions 0-6, flexible 2+
ThrottleTimeMs: int32
ErrorCode: int16
ProducerId: int64
ProducerEpoch: int16
OngoingTxnProducerId: int64, versions 6+
OngoingTxnProducerEpoch: int16, versions 6+
""")
