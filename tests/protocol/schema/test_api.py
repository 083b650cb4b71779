import re

import pytest

from shoal.protocol.schema.api import API, NEVER, ApiKey, request_header_version, response_header_version
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from tests.support.kafka.schemas import KAFKA_VERSIONS, Schema, all_schemas

USERS_OWN_ADDRESSES = {"StreamsGroupHeartbeatResponse", "StreamsGroupDescribeResponse"}
"""These contain addresses that application instances state (application.server), not brokers' addresses."""

CONTROLLERS = {"DescribeQuorumResponse"}
"""Clients of brokers do not connect to controllers, and Shoal has no port for one."""

RENAMED = {"ListClientMetricsResourcesRequest": "ListConfigResourcesRequest"}
"""Key 74 was renamed in 4.1 (KIP-1142)."""


def requests(kafka: str) -> list[Schema]:
    found = [schema for schema in all_schemas(kafka).values() if schema["type"] == "request"]
    return [schema for schema in found if schema["validVersions"] != "none"]


@pytest.mark.parametrize("kafka", KAFKA_VERSIONS)
def test_names_keys_and_flexible_versions_are_those_of_kafka(kafka: str) -> None:
    for schema in requests(kafka):
        api = API[schema["apiKey"]]
        flexible = schema["flexibleVersions"]
        assert RENAMED.get(schema["name"], schema["name"]) == f"{api.name}Request"
        assert api.flexible_from == (NEVER if flexible == "none" else int(flexible.rstrip("+")))


def test_every_key_of_kafka_4_3_is_known() -> None:
    assert {schema["apiKey"] for schema in requests("4.3.0")} <= set(ApiKey)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.FETCH, 11, 1, 0),
        (ApiKey.FETCH, 12, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.SHARE_FETCH, 0, 2, 1),
        (1234, 0, 2, 1),
    ],
)
def test_header_versions(key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def addresses_in(fields: list[Schema]) -> bool:
    names = {field["name"] for field in fields}
    return {"Host", "Port"} <= names or any(addresses_in(field.get("fields", [])) for field in fields)


@pytest.mark.parametrize("kafka", KAFKA_VERSIONS)
def test_every_response_to_a_client_with_an_address_is_rewritten(kafka: str) -> None:
    schemas = all_schemas(kafka)
    clients = [schema for schema in requests(kafka) if "broker" in schema.get("listeners", [])]
    responses = [schemas[re.sub("Request$", "Response", schema["name"])] for schema in clients]
    structs = {schema["name"]: schema.get("commonStructs", []) for schema in responses}
    carrying = {
        schema["name"]
        for schema in responses
        if addresses_in(schema["fields"]) or any(addresses_in(struct["fields"]) for struct in structs[schema["name"]])
    }
    ours = {f"{API[key].name}Response" for key in ADDRESS_RESPONSES}
    assert carrying - USERS_OWN_ADDRESSES - CONTROLLERS <= ours
    if kafka == "4.3.0":
        assert carrying - USERS_OWN_ADDRESSES - CONTROLLERS == ours


def oldest_host(fields: list[Schema]) -> int:
    oldest = [int(re.split(r"[+-]", field["versions"])[0]) for field in fields if field["name"] == "Host"]
    oldest += [oldest_host(field["fields"]) for field in fields if "fields" in field]
    return min(oldest, default=99)


def test_the_first_version_with_an_address_is_that_of_the_schema() -> None:
    schemas = all_schemas("4.3.0")
    assert {
        key: oldest_host(schemas[f"{API[key].name}Response"]["fields"]) for key in ADDRESS_RESPONSES
    } == ADDRESS_RESPONSES
