"""ShareFetch and ShareAcknowledge (KIP-932); version 0 is 3.9's early access."""

from shoal.protocol.schema.language import parse_message

SHARE_FETCH_REQUEST = parse_message("""\
ShareFetchRequest: versions 0-2, flexible 0+
GroupId: string, nullable
MemberId: string, nullable
ShareSessionEpoch: int32
MaxWaitMs: int32
MinBytes: int32
MaxBytes: int32
MaxRecords: int32, versions 1+
BatchSize: int32, versions 1+
ShareAcquireMode: int8, versions 2+
IsRenewAck: bool, versions 2+
Topics: []struct
  TopicId: uuid
  Partitions: []struct
    PartitionIndex: int32
    PartitionMaxBytes: int32, versions 0
    AcknowledgementBatches: []struct
      FirstOffset: int64
      LastOffset: int64
      AcknowledgeTypes: []int8
ForgottenTopicsData: []struct
  TopicId: uuid
  Partitions: []int32
""")

SHARE_FETCH_RESPONSE = parse_message("""\
ShareFetchResponse: versions 0-2, flexible 0+
ThrottleTimeMs: int32
ErrorCode: int16
ErrorMessage: string, nullable
AcquisitionLockTimeoutMs: int32, versions 1+
Responses: []struct
  TopicId: uuid
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
    ErrorMessage: string, nullable
    AcknowledgeErrorCode: int16
    AcknowledgeErrorMessage: string, nullable
    CurrentLeader: struct
      LeaderId: int32
      LeaderEpoch: int32
    Records: records, nullable 0
    AcquiredRecords: []struct
      FirstOffset: int64
      LastOffset: int64
      DeliveryCount: int16
NodeEndpoints: []struct
  NodeId: int32
  Host: string
  Port: int32
  Rack: string, nullable
""")

SHARE_ACKNOWLEDGE_REQUEST = parse_message("""\
ShareAcknowledgeRequest: versions 0-2, flexible 0+
GroupId: string, nullable
MemberId: string, nullable
ShareSessionEpoch: int32
IsRenewAck: bool, versions 2+
Topics: []struct
  TopicId: uuid
  Partitions: []struct
    PartitionIndex: int32
    AcknowledgementBatches: []struct
      FirstOffset: int64
      LastOffset: int64
      AcknowledgeTypes: []int8
""")

SHARE_ACKNOWLEDGE_RESPONSE = parse_message("""\
ShareAcknowledgeResponse: versions 0-2, flexible 0+
ThrottleTimeMs: int32
ErrorCode: int16
ErrorMessage: string, nullable
AcquisitionLockTimeoutMs: int32, versions 2+
Responses: []struct
  TopicId: uuid
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
    ErrorMessage: string, nullable
    CurrentLeader: struct
      LeaderId: int32
      LeaderEpoch: int32
NodeEndpoints: []struct
  NodeId: int32
  Host: string
  Port: int32
  Rack: string, nullable
""")
