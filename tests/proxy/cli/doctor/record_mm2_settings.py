"""Records what MirrorMaker 2 itself derives from random properties: `python -m
tests.proxy.cli.doctor.record_mm2_settings` (needs a JDK).

`data/Mm2Settings.java` calls MM2's own classes; both Kafka versions must agree. The result is the oracle of
`test_doctor_files.py`.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path

import trio

from shoal.scenarios.kafka.java.jars import VERSIONS, jars

DATA = Path(__file__).parent / "data"
RECORDED = DATA / "mm2_settings.json"
CASES = 40
BASE = ("clusters = A, B", "A->B.enabled = true", "A.bootstrap.servers = a:9092", "B.bootstrap.servers = b:9092")

# client -> the compared settings
SETTINGS = {
    "consumer": ("bootstrap.servers", "security.protocol", "sasl.mechanism", "max.poll.records"),
    "producer": ("bootstrap.servers", "security.protocol", "sasl.mechanism", "acks", "compression.type"),
    "connector": ("key.converter", "replication.policy.class"),
    "worker": ("key.converter", "exactly.once.source.support"),
}
# setting -> (where it may be set, its values)
SPOTS = {
    "bootstrap.servers": (
        "{} consumer.{} producer.{} A.consumer.{} A.producer.{} B.consumer.{} B.producer.{} A->B.consumer.{} "
        "A->B.producer.{} A->B.source.consumer.{} A->B.producer.override.{}",
        "h1:9092 h2:9092 h3:9092 h4:9092",
    ),
    "security.protocol": (
        "{} A.{} B.{} A.consumer.{} B.producer.{} A->B.source.consumer.{} A->B.producer.override.{}",
        "PLAINTEXT SASL_PLAINTEXT",
    ),
    "sasl.mechanism": ("{} A.{} B.{} A.consumer.{} B.producer.{}", "PLAIN GSSAPI SCRAM-SHA-256"),
    "max.poll.records": (
        "A.{} consumer.{} source.consumer.{} A.consumer.{} A->B.consumer.{} A->B.source.consumer.{}",
        "1 20 300",
    ),
    "acks": (
        "B.{} producer.{} producer.override.{} A.producer.{} B.producer.{} A->B.producer.{} A->B.producer.override.{}",
        "all 0 1",
    ),
    "compression.type": (
        "producer.{} target.producer.{} B.producer.{} A->B.producer.{} A->B.producer.override.{}",
        "none zstd lz4",
    ),
    "key.converter": (
        "{} B.{} A->B.{}",
        "org.apache.kafka.connect.storage.StringConverter org.apache.kafka.connect.converters.ByteArrayConverter",
    ),
    "exactly.once.source.support": ("{} A.{} B.{}", "enabled disabled preparing"),
    "emit.heartbeats.enabled": ("{} B->A.{} A->B.{}", "true false"),
    "replication.policy.class": (
        "{} A->B.{}",
        "org.apache.kafka.connect.mirror.IdentityReplicationPolicy "
        "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    ),
}


def random_properties(rng: random.Random) -> list[str]:
    lines = list(BASE)
    for setting, (templates, values) in SPOTS.items():
        for template in templates.split():
            if rng.random() < 0.3:
                lines.append(f"{template.format(setting)} = {rng.choice(values.split())}")
    return lines


def settings_of(cases: list[list[str]], lib: Path) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"{index}.properties" for index in range(len(cases))]
        for file, lines in zip(files, cases, strict=True):
            file.write_text("\n".join(lines), encoding="utf-8")
        command = ["java", "-cp", f"{lib}/*", str(DATA / "Mm2Settings.java"), *map(str, files)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [_compared(json.loads(line)) for line in told.splitlines()]


def _compared(told: dict[str, dict[str, str]]) -> dict[str, object]:
    kept = {client: {k: told[client][k] for k in keys if k in told[client]} for client, keys in SETTINGS.items()}
    return {"herders": told["herders"], **kept}


def main() -> None:
    rng = random.Random(712)
    cases = [random_properties(rng) for _ in range(CASES)]
    found = [settings_of(cases, trio.run(jars, version)) for version in VERSIONS]
    assert all(one == found[0] for one in found), "the versions differ"
    entries = [json.dumps({"properties": lines, **told}) for lines, told in zip(cases, found[0], strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(entries) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
