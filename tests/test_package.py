"""What the package states about itself is the same everywhere, and the wheel's modules need no other ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp
import pytest

from shoal.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
STATED = {
    "CHANGELOG.md": r"^## (\S+)",
    "deploy/helm/shoal/Chart.yaml": r'^appVersion: "(.*)"',
    "deploy/Containerfile": r"^ARG VERSION=(\S+)",
}


@pytest.mark.parametrize("file", STATED)
def test_the_version_is_the_same_everywhere(file: str) -> None:
    found = re.search(STATED[file], (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == VERSION


def test_the_wheel_has_what_its_modules_import() -> None:
    assert PROJECT["tool"]["setuptools"]["packages"]["find"]["exclude"] == ["shoal.scenarios.demo*"]
    graph = grimp.build_graph("shoal")
    left_out = {module for module in graph.modules if module.startswith("shoal.scenarios.demo")}
    importers = {by for module in left_out for by in graph.find_modules_that_directly_import(module)}
    assert importers <= left_out
    assert not any(command.function.partition(":")[0] in left_out for command in COMMANDS.values())
