"""Headers, ApiVersions and SASL: the first bytes of every connection."""

from shoal.protocol.schema.language import parse_message

REQUEST_HEADER = parse_message("""\
RequestHeader: versions 0-2, flexible 2+
RequestApiKey: int16
RequestApiVersion: int16
CorrelationId: int32
ClientId: string, versions 1+, nullable, never flexible
""")

RESPONSE_HEADER = parse_message("""\
ResponseHeader: versions 0-1, flexible 1+
CorrelationId: int32
""")

API_VERSIONS_REQUEST = parse_message("""\
ApiVersionsRequest: versions 0-4, flexible 3+
ClientSoftwareName: string, versions 3+
ClientSoftwareVersion: string, versions 3+
""")

API_VERSIONS_RESPONSE = parse_message("""\
ApiVersionsResponse: versions 0-4, flexible 3+
ErrorCode: int16
ApiKeys: []struct
  ApiKey: int16
  MinVersion: int16
  MaxVersion: int16
ThrottleTimeMs: int32, versions 1+
SupportedFeatures: []struct, versions 3+, tag 0
  Name: string
  MinVersion: int16
  MaxVersion: int16
FinalizedFeaturesEpoch: int64, versions 3+, tag 1
FinalizedFeatures: []struct, versions 3+, tag 2
  Name: string
  MaxVersionLevel: int16
  MinVersionLevel: int16
ZkMigrationReady: bool, versions 3+, tag 3
""")

SASL_HANDSHAKE_REQUEST = parse_message("""\
SaslHandshakeRequest: versions 0-1, flexible none
Mechanism: string
""")

SASL_HANDSHAKE_RESPONSE = parse_message("""\
SaslHandshakeResponse: versions 0-1, flexible none
ErrorCode: int16
Mechanisms: []string
""")

SASL_AUTHENTICATE_REQUEST = parse_message("""\
SaslAuthenticateRequest: versions 0-2, flexible 2+
AuthBytes: bytes
""")

SASL_AUTHENTICATE_RESPONSE = parse_message("""\
SaslAuthenticateResponse: versions 0-2, flexible 2+
ErrorCode: int16
ErrorMessage: string, nullable
AuthBytes: bytes
SessionLifetimeMs: int64, versions 1+
""")
