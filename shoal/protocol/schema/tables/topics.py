"""CreateTopics, DeleteTopics, ListOffsets, DescribeConfigs, IncrementalAlterConfigs, DeleteRecords: requests of Shoal
and of legacy clients.

4.x brokers support these from versions 2, 1, 1, 1, 0, 0.
"""

from shoal.protocol.schema.language import parse_message

CREATE_TOPICS_REQUEST = parse_message("""\
CreateTopicsRequest: versions 0-7, flexible 5+
Topics: []struct
  Name: string
  NumPartitions: int32
  ReplicationFactor: int16
  Assignments: []struct
    PartitionIndex: int32
    BrokerIds: []int32
  Configs: []struct
    Name: string
    Value: string, nullable
timeoutMs: int32
validateOnly: bool, versions 1+
""")

CREATE_TOPICS_RESPONSE = parse_message("""\
CreateTopicsResponse: versions 0-7, flexible 5+
ThrottleTimeMs: int32, versions 2+
Topics: []struct
  Name: string
  TopicId: uuid, versions 7+
  ErrorCode: int16
  ErrorMessage: string, versions 1+, nullable
  TopicConfigErrorCode: int16, versions 5+, tag 0
  NumPartitions: int32, versions 5+
  ReplicationFactor: int16, versions 5+
  Configs: []struct, versions 5+, nullable
    Name: string
    Value: string, nullable
    ReadOnly: bool
    ConfigSource: int8
    IsSensitive: bool
""")

DELETE_TOPICS_REQUEST = parse_message("""\
DeleteTopicsRequest: versions 0-6, flexible 4+
Topics: []struct, versions 6+
  Name: string, nullable
  TopicId: uuid
TopicNames: []string, versions 0-5
TimeoutMs: int32
""")

DELETE_TOPICS_RESPONSE = parse_message("""\
DeleteTopicsResponse: versions 0-6, flexible 4+
ThrottleTimeMs: int32, versions 1+
Responses: []struct
  Name: string, nullable 6+
  TopicId: uuid, versions 6+
  ErrorCode: int16
  ErrorMessage: string, versions 5+, nullable
""")

LIST_OFFSETS_REQUEST = parse_message("""\
ListOffsetsRequest: versions 0-11, flexible 6+
ReplicaId: int32
IsolationLevel: int8, versions 2+
Topics: []struct
  Name: string
  Partitions: []struct
    PartitionIndex: int32
    CurrentLeaderEpoch: int32, versions 4+
    Timestamp: int64
    MaxNumOffsets: int32, versions 0
TimeoutMs: int32, versions 10+
""")

LIST_OFFSETS_RESPONSE = parse_message("""\
ListOffsetsResponse: versions 0-11, flexible 6+
ThrottleTimeMs: int32, versions 2+
Topics: []struct
  Name: string
  Partitions: []struct
    PartitionIndex: int32
    ErrorCode: int16
    OldStyleOffsets: []int64, versions 0
    Timestamp: int64, versions 1+
    Offset: int64, versions 1+
    LeaderEpoch: int32, versions 4+
""")

DESCRIBE_CONFIGS_REQUEST = parse_message("""\
DescribeConfigsRequest: versions 0-4, flexible 4+
Resources: []struct
  ResourceType: int8
  ResourceName: string
  ConfigurationKeys: []string, nullable
IncludeSynonyms: bool, versions 1+
IncludeDocumentation: bool, versions 3+
""")

DESCRIBE_CONFIGS_RESPONSE = parse_message("""\
DescribeConfigsResponse: versions 0-4, flexible 4+
ThrottleTimeMs: int32
Results: []struct
  ErrorCode: int16
  ErrorMessage: string, nullable
  ResourceType: int8
  ResourceName: string
  Configs: []struct
    Name: string
    Value: string, nullable
    ReadOnly: bool
    IsDefault: bool, versions 0
    ConfigSource: int8, versions 1+
    IsSensitive: bool
    Synonyms: []struct, versions 1+
      Name: string
      Value: string, nullable
      Source: int8
    ConfigType: int8, versions 3+
    Documentation: string, versions 3+, nullable
""")

INCREMENTAL_ALTER_CONFIGS_REQUEST = parse_message("""\
IncrementalAlterConfigsRequest: versions 0-1, flexible 1+
Resources: []struct
  ResourceType: int8
  ResourceName: string
  Configs: []struct
    Name: string
    ConfigOperation: int8
    Value: string, nullable
ValidateOnly: bool
""")

INCREMENTAL_ALTER_CONFIGS_RESPONSE = parse_message("""\
IncrementalAlterConfigsResponse: versions 0-1, flexible 1+
ThrottleTimeMs: int32
Responses: []struct
  ErrorCode: int16
  ErrorMessage: string, nullable
  ResourceType: int8
  ResourceName: string
""")

DELETE_RECORDS_REQUEST = parse_message("""\
DeleteRecordsRequest: versions 0-2, flexible 2+
Topics: []struct
  Name: string
  Partitions: []struct
    PartitionIndex: int32
    Offset: int64
TimeoutMs: int32
""")

DELETE_RECORDS_RESPONSE = parse_message("""\
DeleteRecordsResponse: versions 0-2, flexible 2+
ThrottleTimeMs: int32
Topics: []struct
  Name: string
  Partitions: []struct
    PartitionIndex: int32
    LowWatermark: int64
    ErrorCode: int16
""")
