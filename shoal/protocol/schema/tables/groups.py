"""Consumer groups and their offsets. 4.x brokers support OffsetCommit from version 2, OffsetFetch from 1."""

from shoal.protocol.schema.language import parse_message

LIST_GROUPS_REQUEST = parse_message("""\
ListGroupsRequest: versions 0-5, flexible 3+
StatesFilter: []string, versions 4+
TypesFilter: []string, versions 5+
""")

LIST_GROUPS_RESPONSE = parse_message("""\
ListGroupsResponse: versions 0-5, flexible 3+
ThrottleTimeMs: int32, versions 1+
ErrorCode: int16
Groups: []struct
  GroupId: string
  ProtocolType: string
  GroupState: string, versions 4+
  GroupType: string, versions 5+
""")

OFFSET_COMMIT_REQUEST = parse_message("""\
OffsetCommitRequest: versions 0-10, flexible 8+
GroupId: string
GenerationIdOrMemberEpoch: int32, versions 1+
MemberId: string, versions 1+
GroupInstanceId: string, versions 7+, nullable
RetentionTimeMs: int64, versions 2-4
Topics: []struct
  Name: string, versions 0-9
  TopicId: uuid, versions 10+
  Partitions: []struct
    PartitionIndex: int32
    CommittedOffset: int64
    CommittedLeaderEpoch: int32, versions 6+
    CommitTimestamp: int64, versions 1
    CommittedMetadata: string, nullable
""")

OFFSET_COMMIT_RESPONSE = parse_message("""\
OffsetCommitResponse: versions 0-10, flexible 8+
ThrottleTimeMs: int32, versions 3+
Topics: []struct
  Name: string, versions 0-9
  TopicId: uuid, versions 10+
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
""")

OFFSET_FETCH_REQUEST = parse_message("""\
OffsetFetchRequest: versions 0-10, flexible 6+
GroupId: string, versions 0-7
Topics: []struct, versions 0-7, nullable 2+
  Name: string
  PartitionIndexes: []int32
Groups: []struct, versions 8+
  GroupId: string
  MemberId: string, versions 9+, nullable
  MemberEpoch: int32, versions 9+
  Topics: []struct, nullable
    Name: string, versions 8-9
    TopicId: uuid, versions 10+
    PartitionIndexes: []int32
RequireStable: bool, versions 7+
""")

OFFSET_FETCH_RESPONSE = parse_message("""\
OffsetFetchResponse: versions 0-10, flexible 6+
ThrottleTimeMs: int32, versions 3+
Topics: []struct, versions 0-7
  Name: string
  Partitions: []struct
    PartitionIndex: int32
    CommittedOffset: int64
    CommittedLeaderEpoch: int32, versions 5+
    Metadata: string, nullable
    ErrorCode: int16
ErrorCode: int16, versions 2-7
Groups: []struct, versions 8+
  GroupId: string
  Topics: []struct
    Name: string, versions 8-9
    TopicId: uuid, versions 10+
    Partitions: []struct
      PartitionIndex: int32
      CommittedOffset: int64
      CommittedLeaderEpoch: int32
      Metadata: string, nullable
      ErrorCode: int16
  ErrorCode: int16
""")
