"""`shoal.protocol` offers its public names without loading a codec before one is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import shoal.protocol

SOURCE = ast.parse(Path(shoal.protocol.__file__ or "").read_text())
TYPED = sorted(
    (node.module or "", alias.name)
    for block in SOURCE.body
    if isinstance(block, ast.If)
    for node in block.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
)


@pytest.mark.parametrize(("module", "name"), TYPED, ids=[name for _, name in TYPED])
def test_a_public_name_is_the_one_of_its_module(module: str, name: str) -> None:
    assert getattr(shoal.protocol, name) is getattr(import_module(module), name)


def test_the_types_know_each_public_name() -> None:
    imported = vars(import_module("shoal.protocol"))["_MODULE_OF"]
    assert sorted((f"shoal.protocol.{module}", name) for name, module in imported.items()) == TYPED
    assert set(imported) <= set(dir(shoal.protocol))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'shoal\.protocol' has no attribute 'nothing'"):
        _ = shoal.protocol.nothing


def test_nothing_is_loaded_before_it_is_used() -> None:
    code = "import sys, shoal.protocol; print([name for name in sys.modules if name.startswith('shoal.protocol.')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
