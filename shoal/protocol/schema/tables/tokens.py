"""Answers to requests for delegation tokens, which Shoal refuses where it logs in at the brokers itself."""

from shoal.protocol.schema.language import parse_message

CREATE_DELEGATION_TOKEN_RESPONSE = parse_message("""\
CreateDelegationTokenResponse: versions 0-3, flexible 2+
ErrorCode: int16
PrincipalType: string
PrincipalName: string
TokenRequesterPrincipalType: string, versions 3+
TokenRequesterPrincipalName: string, versions 3+
IssueTimestampMs: int64
ExpiryTimestampMs: int64
MaxTimestampMs: int64
TokenId: string
Hmac: bytes
ThrottleTimeMs: int32
""")

DESCRIBE_DELEGATION_TOKEN_RESPONSE = parse_message("""\
DescribeDelegationTokenResponse: versions 0-3, flexible 2+
ErrorCode: int16
Tokens: []struct
  PrincipalType: string
  PrincipalName: string
  TokenRequesterPrincipalType: string, versions 3+
  TokenRequesterPrincipalName: string, versions 3+
  IssueTimestamp: int64
  ExpiryTimestamp: int64
  MaxTimestamp: int64
  TokenId: string
  Hmac: bytes
  Renewers: []struct
    PrincipalType: string
    PrincipalName: string
ThrottleTimeMs: int32
""")
