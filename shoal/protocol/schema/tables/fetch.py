"""Fetch; 4.x brokers support versions 4-18, 3.9 also 0-3."""

from shoal.protocol.schema.language import parse_message

FETCH_REQUEST = parse_message("""\
FetchRequest: versions 0-18, flexible 12+
ClusterId: string, versions 12+, nullable, tag 0
ReplicaId: int32, versions 0-14
ReplicaState: struct, versions 15+, tag 1
  ReplicaId: int32
  ReplicaEpoch: int64
MaxWaitMs: int32
MinBytes: int32
MaxBytes: int32, versions 3+
IsolationLevel: int8, versions 4+
SessionId: int32, versions 7+
SessionEpoch: int32, versions 7+
Topics: []struct
  Topic: string, versions 0-12
  TopicId: uuid, versions 13+
  Partitions: []struct
    Partition: int32
    CurrentLeaderEpoch: int32, versions 9+
    FetchOffset: int64
    LastFetchedEpoch: int32, versions 12+
    LogStartOffset: int64, versions 5+
    PartitionMaxBytes: int32
    ReplicaDirectoryId: uuid, versions 17+, tag 0
    HighWatermark: int64, versions 18+, tag 1
ForgottenTopicsData: []struct, versions 7+
  Topic: string, versions 7-12
  TopicId: uuid, versions 13+
  Partitions: []int32
RackId: string, versions 11+
""")

FETCH_RESPONSE = parse_message("""\
FetchResponse: versions 0-18, flexible 12+
ThrottleTimeMs: int32, versions 1+
ErrorCode: int16, versions 7+
SessionId: int32, versions 7+
Responses: []struct
  Topic: string, versions 0-12
  TopicId: uuid, versions 13+
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
    HighWatermark: int64
    LastStableOffset: int64, versions 4+
    LogStartOffset: int64, versions 5+
    DivergingEpoch: struct, versions 12+, tag 0
      Epoch: int32
      EndOffset: int64
    CurrentLeader: struct, versions 12+, tag 1
      LeaderId: int32
      LeaderEpoch: int32
    SnapshotId: struct, versions 12+, tag 2
      EndOffset: int64
      Epoch: int32
    AbortedTransactions: []struct, versions 4+, nullable
      ProducerId: int64
      FirstOffset: int64
    PreferredReadReplica: int32, versions 11+
    Records: records, nullable
NodeEndpoints: []struct, versions 16+, tag 0
  NodeId: int32
  Host: string
  Port: int32
  Rack: string, nullable
""")
