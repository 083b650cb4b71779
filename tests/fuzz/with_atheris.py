"""The coverage-guided engine, where `pip install atheris` was possible. libFuzzer ends its process, so each target has
one.

python -m tests.fuzz.with_atheris TARGET SECONDS CORPUS     that process
"""

import importlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.fuzz.check import CPU_LIMIT_S, MAX_INPUT, MEMORY_LIMIT, check
from tests.fuzz.kept import KEPT, keep, slug
from tests.fuzz.target import Target

__all__ = ["fuzz_all"]

_INTERPRETER_MIB = 256


def fuzz_all(targets: Sequence[Target], seconds: float, number: int) -> bool:
    """Whether nothing was found. The corpus of each target is kept in `build/fuzz` and grows from run to run."""
    broken = 0
    for target in targets:
        corpus = KEPT / "corpus" / slug(target.name)
        corpus.mkdir(parents=True, exist_ok=True)
        for index, data in enumerate(target.seeds()):
            (corpus / f"seed-{index}").write_bytes(data)
        argv = [sys.executable, "-m", "tests.fuzz.with_atheris", target.name, f"{seconds:g}", str(corpus), str(number)]
        finished = subprocess.run(argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = finished.stdout.decode(errors="replace").splitlines()
        print(
            f"{target.name}: {next((line for line in reversed(lines) if line.startswith('Done')), 'BROKEN')}",
            flush=True,
        )
        if finished.returncode != 0:
            print("\n".join(lines[-40:]), file=sys.stderr, flush=True)
            broken += 1
    print(f"{len(targets)} targets, {broken} broken", flush=True)
    return not broken


def _child(name: str, seconds: str, corpus: str, number: str) -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["shoal.protocol"]):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[name]

    def one(data: bytes) -> None:
        try:
            check(target, data)
        except Exception:
            keep(name, data)
            raise

    options = {
        "max_total_time": f"{max(int(float(seconds)), 1)}",
        "max_len": f"{MAX_INPUT}",
        "timeout": f"{10 * CPU_LIMIT_S:.0f}",
        "rss_limit_mb": f"{_INTERPRETER_MIB + (MEMORY_LIMIT >> 20)}",
        "seed": f"{int(number) + 1}",
        "artifact_prefix": f"{KEPT}/libfuzzer-",
    }
    atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), corpus], one)
    atheris.Fuzz()


if __name__ == "__main__":
    _child(*sys.argv[1:])
