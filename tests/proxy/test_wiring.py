"""The lines for the mirror, in the three forms in which it is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.doctor import read_mirror
from shoal.proxy.settings import Address
from shoal.proxy.wiring import FORMS, Wiring, connect, dedicated, strimzi, wiring_lines

if TYPE_CHECKING:
    from shoal.proxy.doctor import Mirror

WIRING = Wiring(source=Address("shoal", 19092), target=Address("::1", 29092), source_alias="east", target_alias="west")


def test_dedicated_lines_are_properties() -> None:
    lines = [line for line in dedicated(WIRING).splitlines() if not line.startswith("#")]

    assert lines == [
        "east.consumer.bootstrap.servers = shoal:19092",
        "west.producer.bootstrap.servers = [::1]:29092",
        "west.producer.compression.type = none",
        "emit.heartbeats.enabled = false",
    ]


def test_connect_lines_are_json_with_converters() -> None:
    config = json.loads(connect(WIRING))

    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert config == {
        "source.consumer.bootstrap.servers": "shoal:19092",
        "producer.override.bootstrap.servers": "[::1]:29092",
        "producer.override.compression.type": "none",
        "key.converter": converter,
        "value.converter": converter,
        "header.converter": converter,
    }


def test_strimzi_lines_are_a_fragment_of_the_v1_resource() -> None:
    assert strimzi(Wiring(source=Address("shoal", 19092), target=Address("shoal", 29092))) == (
        "apiVersion: kafka.strimzi.io/v1\n"
        "kind: KafkaMirrorMaker2\n"
        "spec:\n"
        "  target:\n"
        "    alias: B\n"
        "  mirrors:\n"
        "    - source:\n"
        "        alias: A\n"
        "      sourceConnector:\n"
        "        config:\n"
        '          source.consumer.bootstrap.servers: "shoal:19092"\n'
        '          producer.override.bootstrap.servers: "shoal:29092"\n'
        '          producer.override.compression.type: "none"\n'
    )


def test_a_loopback_address_is_pointed_out_for_strimzi() -> None:
    assert strimzi(WIRING).startswith("# 127.0.0.1 leads to Shoal only inside one pod")


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_told_under_their_titles(form: str) -> None:
    title, write = FORMS[form]

    assert f"--- {title}\n\n{write(WIRING)}" in wiring_lines(WIRING)
    assert wiring_lines(WIRING, form) == write(WIRING)


# -- the forms mean the same ---------------------------------------------------------------------------------------

CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
}


def yaml_paths(text: str) -> dict[str, str]:
    """dotted path -> value, of the little YAML that `strimzi` writes: mappings, one-element lists, quoted or bare text."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []  # indent and key of the mappings around a line
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        bare = line.replace("- ", "  ", 1)
        indent = len(bare) - len(bare.lstrip())
        key, _, value = bare.strip().partition(":")
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        if value.strip():
            found["/".join(name for _, name in above)] = json.loads(value) if '"' in value else value.strip()
    return found


def strimzi_connector(text: str) -> dict[str, str]:
    """The connector that the operator makes of the resource: aliases from source and target, and `config` as it stands."""
    paths = yaml_paths(text)
    assert paths["kind"] == "KafkaMirrorMaker2"
    place = "spec/mirrors/sourceConnector/config/"
    config = {path.removeprefix(place): value for path, value in paths.items() if path.startswith(place)}
    aliases = {
        "source.cluster.alias": paths["spec/mirrors/source/alias"],
        "target.cluster.alias": paths["spec/target/alias"],
    }
    return {**config, **aliases, "connector.class": CONNECTOR["connector.class"]}


def of_data_clients(mirror: Mirror) -> dict[str, str | None]:
    (flow,) = mirror.flows
    assert flow.name == "east->west"
    wanted = (("consumer", "bootstrap.servers"), ("producer", "bootstrap.servers"), ("producer", "compression.type"))
    found = {f"{client} {key}": flow.find(client, key) for client, key in wanted}
    return {name: entry.value if entry else None for name, entry in found.items()}


def test_every_form_gives_the_data_clients_the_same() -> None:
    flow = "clusters = east, west\neast->west.enabled = true\n"
    written = {
        "dedicated": flow + dedicated(WIRING),
        "connect": json.dumps({**CONNECTOR, **json.loads(connect(WIRING))}),
        "strimzi": json.dumps(strimzi_connector(strimzi(WIRING))),
    }

    assert sorted(written) == sorted(FORMS)
    for text in written.values():
        assert of_data_clients(read_mirror(text)) == {
            "consumer bootstrap.servers": "shoal:19092",
            "producer bootstrap.servers": "[::1]:29092",
            "producer compression.type": "none",
        }
