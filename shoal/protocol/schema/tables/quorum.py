"""DescribeQuorum: the controllers and, from version 2 (KIP-853), their listeners."""

from shoal.protocol.schema.language import parse_message

DESCRIBE_QUORUM_REQUEST = parse_message("""\
DescribeQuorumRequest: versions 0-2, flexible 0+
Topics: []struct
  TopicName: string
  Partitions: []struct
    PartitionIndex: int32
""")

DESCRIBE_QUORUM_RESPONSE = parse_message("""\
DescribeQuorumResponse: versions 0-2, flexible 0+
ErrorCode: int16
ErrorMessage: string, versions 2+, nullable
Topics: []struct
  TopicName: string
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
    ErrorMessage: string, versions 2+, nullable
    LeaderId: int32
    LeaderEpoch: int32
    HighWatermark: int64
    CurrentVoters: []struct
      ReplicaId: int32
      ReplicaDirectoryId: uuid, versions 2+
      LogEndOffset: int64
      LastFetchTimestamp: int64, versions 1+
      LastCaughtUpTimestamp: int64, versions 1+
    Observers: []struct
      ReplicaId: int32
      ReplicaDirectoryId: uuid, versions 2+
      LogEndOffset: int64
      LastFetchTimestamp: int64, versions 1+
      LastCaughtUpTimestamp: int64, versions 1+
Nodes: []struct, versions 2+
  NodeId: int32
  Listeners: []struct
    Name: string
    Host: string
    Port: uint16
""")
