"""Kafka's own schemas (`common/message/*.json` in the kafka-clients jar) as an oracle for our tables."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

__all__ = ["KAFKA_VERSIONS", "Row", "Schema", "all_schemas", "in_version", "kafka_lib", "rows"]

KAFKA_VERSIONS = ("4.3.0", "3.9.1")

Schema = dict[str, Any]


class Row(NamedTuple):
    """One field as the wire has it in one version; `path` is dotted."""

    path: str
    type: str
    nullable: bool
    tag: int | None
    never_flexible: bool


def kafka_lib(kafka: str) -> Path:
    """The jars of a Kafka release. `make test` puts them there before any test runs."""
    return Path(__file__).parents[3] / "build" / "kafka" / kafka / "lib"


@cache
def all_schemas(kafka: str) -> dict[str, Schema]:
    """Every message of a Kafka release by name."""
    with ZipFile(kafka_lib(kafka) / f"kafka-clients-{kafka}.jar") as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [archive.read(name).decode() for name in names]
    schemas = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {schema["name"]: schema for schema in schemas}


def in_version(text: str | None, version: int) -> bool:
    """Kafka's own notation: `none`, `3`, `3+`, `0-12`."""
    if text is None or text == "none":
        return False
    if text.endswith("+"):
        return version >= int(text[:-1])
    low, _, high = text.partition("-")
    return int(low) <= version <= int(high or low)


def rows(schema: Schema, version: int) -> list[Row]:
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    return list(_rows(schema["fields"], structs, version, ""))


def _rows(fields: list[Schema], structs: dict[str, list[Schema]], version: int, prefix: str) -> list[Row]:
    found = []
    for field in fields:
        if not in_version(field["versions"], version):
            continue
        element = field["type"].removeprefix("[]")
        inner = field.get("fields") or structs.get(element)
        path = prefix + field["name"]
        kind = field["type"].replace(element, "struct") if inner else field["type"]
        tag = field["tag"] if in_version(field.get("taggedVersions"), version) else None
        nullable = in_version(field.get("nullableVersions"), version)
        found.append(Row(path, kind, nullable, tag, field.get("flexibleVersions") == "none"))
        found += _rows(inner or [], structs, version, f"{path}.")
    return found
