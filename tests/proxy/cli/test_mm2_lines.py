"""The lines for the mirror, in the three ways of running it."""

from __future__ import annotations

import io
import json
import subprocess
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.cli.doctor import ShoalListeners, check_mirror, read_mirror
from shoal.proxy.cli.flags.arguments import parse_arguments
from shoal.proxy.cli.flags.mirror import mirror_clusters, mirror_listeners
from shoal.proxy.cli.main import main
from shoal.proxy.cli.mm2_java import BEHIND_SHOAL
from shoal.proxy.cli.mm2_lines import FORMS, Wiring, connect, dedicated, environment, strimzi, wiring_lines
from shoal.proxy.config.settings import Address
from tests.support.mirror_configs import BYTES, grave
from tests.support.processes import CLUSTERS

if TYPE_CHECKING:
    from shoal.proxy.cli.doctor import Mirror

WIRED_FORMS = [form for form in FORMS if form != "environment"]
WIRING = Wiring(source=Address("shoal", 19092), target=Address("::1", 29092), source_alias="east", target_alias="west")


def test_dedicated_lines_are_properties() -> None:
    lines = [line for line in dedicated(WIRING).splitlines() if not line.startswith("#")]

    assert lines == [
        "east.consumer.bootstrap.servers = shoal:19092",
        "west.producer.bootstrap.servers = [::1]:29092",
        "west.producer.compression.type = none",
        "west.producer.batch.size = 131072",
        "emit.heartbeats.enabled = false",
    ]


def test_connect_lines_are_json_with_converters() -> None:
    config = json.loads(connect(WIRING))

    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert config == {
        "source.consumer.bootstrap.servers": "shoal:19092",
        "producer.override.bootstrap.servers": "[::1]:29092",
        "producer.override.compression.type": "none",
        "producer.override.batch.size": "131072",
        "key.converter": converter,
        "value.converter": converter,
        "header.converter": converter,
    }


def test_strimzi_lines_are_a_fragment_of_the_v1_resource() -> None:
    assert strimzi(Wiring(source=Address("shoal", 19092), target=Address("shoal", 29092))) == (
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\nspec:\n"
        '  jvmOptions:\n    "-Xms": 64m\n    "-Xmx": 2g\n    "-XX":\n      TieredStopAtLevel: "1"\n'
        '      UseSerialGC: "true"\n      MaxNewSize: "64M"\n'
        "  target:\n    alias: B\n  mirrors:\n    - "
        "source:\n        alias: A\n      sourceConnector:\n        config:\n"
        '          source.consumer.bootstrap.servers: "shoal:19092"\n'
        '          producer.override.bootstrap.servers: "shoal:29092"\n'
        '          producer.override.compression.type: "none"\n'
        '          producer.override.batch.size: "131072"\n'
    )


def test_a_loopback_address_is_pointed_out_for_strimzi() -> None:
    assert strimzi(WIRING).startswith("# 127.0.0.1 reaches Shoal only inside the same pod")


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_told_under_their_titles(form: str) -> None:
    title, write = FORMS[form]

    assert f"--- {title}\n\n{write(WIRING)}" in wiring_lines(WIRING)
    assert wiring_lines(WIRING, form) == write(WIRING)


def test_the_environment_is_what_a_shell_hands_to_kafkas_script() -> None:
    shell = environment(WIRING) + 'for one in $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS; do echo "$one"; done'
    told = subprocess.run(["sh", "-euc", shell], capture_output=True, text=True, check=True, env={})

    assert tuple(told.stdout.splitlines()) == BEHIND_SHOAL.argv()
    assert "-Xmx2G" in BEHIND_SHOAL.argv()


# -- the forms agree ---------------------------------------------------------------------------------------------------

CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
}


def yaml_paths(text: str) -> dict[str, str]:
    """Dotted path -> value of the YAML written by `strimzi`: mappings, one-element lists, quoted or bare text."""
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
    """The resource's connector as the operator creates it: aliases from source and target, and `config` unchanged."""
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
    wanted = (
        ("consumer", "bootstrap.servers"),
        *(("producer", key) for key in ("bootstrap.servers", "compression.type", "batch.size")),
    )
    found = {f"{client} {key}": flow.find(client, key) for client, key in wanted}
    return {name: entry.value if entry else None for name, entry in found.items()}


def test_every_form_gives_the_data_clients_the_same() -> None:
    flow = "clusters = east, west\neast->west.enabled = true\n"
    written = {
        "dedicated": flow + dedicated(WIRING),
        "connect": json.dumps({**CONNECTOR, **json.loads(connect(WIRING))}),
        "strimzi": json.dumps(strimzi_connector(strimzi(WIRING))),
    }

    assert sorted(written) == sorted(WIRED_FORMS)
    for text in written.values():
        assert of_data_clients(read_mirror(text)) == {
            "consumer bootstrap.servers": "shoal:19092",
            "producer bootstrap.servers": "[::1]:29092",
            "producer compression.type": "none",
            "producer batch.size": "131072",
        }


# -- printed lines pass the check --------------------------------------------------------------------------------------

RUN_LIMITS = st.one_of(
    st.sampled_from(("64KiB", "512KiB", "1020KiB", "1021KiB", "1MiB", "2MiB", "8188KiB", "8MiB")),
    st.integers(64 << 10, 8 << 20).map(str),
)
ADDRESSES = st.sampled_from(("127.0.0.1", "0.0.0.0", "[::1]", "shoal"))


SECURE: tuple[list[str], ...] = (
    [],
    ["--{}-tls"],
    ["--{}-tls-ca=ca.pem", "--{}-tls-cert=shoal.pem"],
    ["--{}-sasl-mechanism=PLAIN", "--{}-sasl-username=x", "--{}-sasl-password-file=x"],
    ["--{}-tls", "--{}-sasl-mechanism=GSSAPI", "--{}-sasl-keytab=x", "--{}-sasl-principal=x"],
)


def at_brokers(flags: list[str], side: str) -> str:
    """The protocol of the mirror's clients that go to the brokers."""
    tls, sasl = (any(flag.startswith(f"--{side}-{kind}") for flag in flags) for kind in ("tls", "sasl"))
    return f"SASL_{'SSL' if tls else 'PLAINTEXT'}" if sasl else "SSL" if tls else "PLAINTEXT"


@st.composite
def flags(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """The flags of `shoal mirror`, and those that `shoal check` shares."""
    shared = [
        f"--source-listen={draw(ADDRESSES)}:19092",
        f"--target-listen={draw(ADDRESSES)}:29092",
        f"--run-limit={draw(RUN_LIMITS)}",
        *draw(st.sampled_from(([], ["--advertise=shoal.example"]))),
        *draw(st.sampled_from(([], ["--deep-topics=^audit$"]))),
        *draw(
            st.sampled_from(([], ["--listen-tls-cert=s.pem"], ["--listen-tls-cert=s.pem", "--listen-tls-client-ca=c"]))
        ),
        *(
            flag
            for side in ("source", "target")
            for flag in draw(st.sampled_from(SECURE))
            for flag in [flag.format(side)]
        ),
    ]
    own = [*draw(st.sampled_from(([], ["--min-batch-bytes=0"]))), *draw(st.sampled_from(([], ["--tag=a=b"])))]
    return ["mirror", *CLUSTERS, *shared, *own, "--print-only"], ["check", *shared]


def as_file(form: str, printed: str, source: str, target: str) -> str:
    """Together with the operator's existing settings. `source`, `target`: the protocols of the brokers."""
    if form == "dedicated":
        written = "clusters = A, B\nA->B.enabled = true\nA.bootstrap.servers = a1:9092\nB.bootstrap.servers = b1:9092\n"
        return f"{written}A.security.protocol = {source}\nB.security.protocol = {target}\n{printed}"
    config = json.loads(printed) if form == "connect" else strimzi_connector(printed)
    if form == "strimzi":  # Strimzi sets the converters
        config |= {f"{one}.converter": BYTES for one in ("key", "value", "header")}
    names = {"source.cluster.alias": "A", "target.cluster.alias": "B"}
    brokers = {"source.cluster.bootstrap.servers": "a1:9092", "target.cluster.bootstrap.servers": "b1:9092"}
    for side, protocol in (("source", source), ("target", target)):
        brokers[f"{side}.cluster.security.protocol"] = protocol
        if form == "strimzi" and protocol.endswith("SSL"):  # from tls.trustedCertificates
            brokers[f"{side}.cluster.ssl.truststore.location"] = f"/tmp/kafka/clusters/{side}.truststore.p12"
    return json.dumps({**CONNECTOR, **brokers, **config, **names})


@pytest.mark.parametrize("form", WIRED_FORMS)
@settings(max_examples=30)
@given(flags())
def test_what_mirror_prints_passes_the_check_with_the_same_flags(form: str, given: tuple[list[str], list[str]]) -> None:
    mirror, check = given
    text = as_file(form, printed([*mirror, "--form", form]), at_brokers(check, "source"), at_brokers(check, "target"))
    parsed = parse_arguments([*check, "-"])
    wrap, unwrap = mirror_listeners(parsed)
    report = check_mirror(read_mirror(text), ShoalListeners(wrap=wrap, unwrap=unwrap, clusters=mirror_clusters(parsed)))
    notes = [str(finding.at) for finding in report.findings if "truststore must also hold" not in finding.why]
    assert notes == ["compression.type of topics on B", "KAFKA_JVM_PERFORMANCE_OPTS (not in this file)"], (
        "the notes for everybody"
    )
    assert not grave(report)


def printed(arguments: list[str]) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(arguments) == 0
    return output.getvalue()


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ("512KiB", ()),
        (
            "2MiB",
            (
                "B.producer.max.request.size = 2101248",
                "A.consumer.max.partition.fetch.bytes = 2097152",
            ),
        ),
        (
            "8MiB",
            (
                "B.producer.max.request.size = 8392704",
                "B.producer.buffer.memory = 33570816",
                "A.consumer.max.partition.fetch.bytes = 8388608",
            ),
        ),
    ],
)
def test_sizes_are_printed_where_the_defaults_do_not_do(limit: str, sizes: tuple[str, ...]) -> None:
    lines = printed(["mirror", *CLUSTERS, "--print-only", "--form=dedicated", f"--run-limit={limit}"]).splitlines()
    found = tuple(line for line in lines if line.rpartition("= ")[2].isdecimal())
    assert found == ("B.producer.batch.size = 131072", *sizes)


@pytest.mark.parametrize("command", [["mirror", *CLUSTERS, "--print-only"], ["check", "-"]])
@pytest.mark.parametrize("limit", ["5GiB", "32MiB"])
def test_a_run_limit_that_cannot_work_is_refused(
    command: list[str], limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, f"--run-limit={limit}"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--run-limit: " in said.err
    assert "is too large: at most 33550336" in said.err
    assert "at most 33550336" in said.err
