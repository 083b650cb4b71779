"""Metadata, FindCoordinator, DescribeCluster: the brokers and their addresses."""

from shoal.protocol.schema.language import parse_message

METADATA_REQUEST = parse_message("""\
MetadataRequest: versions 0-13, flexible 9+
Topics: []struct, nullable 1+
  TopicId: uuid, versions 10+
  Name: string, nullable 10+
AllowAutoTopicCreation: bool, versions 4+
IncludeClusterAuthorizedOperations: bool, versions 8-10
IncludeTopicAuthorizedOperations: bool, versions 8+
""")

METADATA_RESPONSE = parse_message("""\
MetadataResponse: versions 0-13, flexible 9+
ThrottleTimeMs: int32, versions 3+
Brokers: []struct
  NodeId: int32
  Host: string
  Port: int32
  Rack: string, versions 1+, nullable
ClusterId: string, versions 2+, nullable
ControllerId: int32, versions 1+
Topics: []struct
  ErrorCode: int16
  Name: string, nullable 12+
  TopicId: uuid, versions 10+
  IsInternal: bool, versions 1+
  Partitions: []struct
    ErrorCode: int16
    PartitionIndex: int32
    LeaderId: int32
    LeaderEpoch: int32, versions 7+
    ReplicaNodes: []int32
    IsrNodes: []int32
    OfflineReplicas: []int32, versions 5+
  TopicAuthorizedOperations: int32, versions 8+
ClusterAuthorizedOperations: int32, versions 8-10
ErrorCode: int16, versions 13+
""")

FIND_COORDINATOR_REQUEST = parse_message("""\
FindCoordinatorRequest: versions 0-6, flexible 3+
Key: string, versions 0-3
KeyType: int8, versions 1+
CoordinatorKeys: []string, versions 4+
""")

FIND_COORDINATOR_RESPONSE = parse_message("""\
FindCoordinatorResponse: versions 0-6, flexible 3+
ThrottleTimeMs: int32, versions 1+
ErrorCode: int16, versions 0-3
ErrorMessage: string, versions 1-3, nullable
NodeId: int32, versions 0-3
Host: string, versions 0-3
Port: int32, versions 0-3
Coordinators: []struct, versions 4+
  Key: string
  NodeId: int32
  Host: string
  Port: int32
  ErrorCode: int16
  ErrorMessage: string, nullable
""")

DESCRIBE_CLUSTER_REQUEST = parse_message("""\
DescribeClusterRequest: versions 0-2, flexible 0+
IncludeClusterAuthorizedOperations: bool
EndpointType: int8, versions 1+
IncludeFencedBrokers: bool, versions 2+
""")

DESCRIBE_CLUSTER_RESPONSE = parse_message("""\
DescribeClusterResponse: versions 0-2, flexible 0+
ThrottleTimeMs: int32
ErrorCode: int16
ErrorMessage: string, nullable
EndpointType: int8, versions 1+
ClusterId: string
ControllerId: int32
Brokers: []struct
  BrokerId: int32
  Host: string
  Port: int32
  Rack: string, nullable
  IsFenced: bool, versions 2+
ClusterAuthorizedOperations: int32
""")
