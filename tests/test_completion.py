"""`shoal completion`: scripts that real shells take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shoal.cli import COMMANDS
from shoal.completion import SHELLS, script

if TYPE_CHECKING:
    from pathlib import Path

_BASH = """\
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
_shtab_shoal shoal "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_has_every_command_and_is_valid(shell: str, tmp_path: Path) -> None:
    text = script(shell)

    assert all(name in text for name in ("mirror", "run", "check", "probe", *COMMANDS))
    assert all(flag in text for flag in ("target-sasl-mechanism", "to-pcap", "capture-raw", "password-file"))
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(text, encoding="utf-8")
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("shoal mir", ["mirror"]),
        ("shoal mirror --targ", ["--target"]),
        ("shoal mirror --log-level ", ["debug", "info", "warning", "error"]),
        ("shoal capture ", ["ls", "cat", "verify", "compact", "to-pcap"]),
        ("shoal spark cascade --check", ["--checkpoint"]),
        ("shoal users add --pass", ["--password-file"]),
        ("shoal completion ", list(SHELLS)),
    ],
)
def test_bash_completes(words: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("bash"), encoding="utf-8")

    done = subprocess.run(
        ["bash", "-c", _BASH, "bash", str(tmp_path / "script"), *words.split(" ")],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip

    assert set(expected) <= set(done.stdout.split())
    assert all(found.startswith(words.split(" ")[-1]) for found in done.stdout.split())


def test_a_missing_extra_leaves_the_name() -> None:
    run = (
        "import sys; sys.modules['numpy'] = sys.modules['pyspark'] = sys.modules['confluent_kafka'] = None; "
        "sys.argv[1:] = ['completion', 'fish']; import shoal.__main__ as m; m.main()"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)

    assert "replay" in done.stdout
    assert "topic-prefix" not in done.stdout
    assert "target-sasl-mechanism" in done.stdout
