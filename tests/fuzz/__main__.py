"""python -m tests.fuzz [--seconds N] [--seed N] [--engine ...] [--list] [--replay FILE] [TARGET ...]"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import with_atheris, with_mutations
from tests.fuzz.check import check
from tests.fuzz.targets import TARGETS

ENGINES = {"atheris": with_atheris.fuzz_all, "mutations": with_mutations.fuzz_all}
DEFAULT = "mutations" if importlib.util.find_spec("atheris") is None else "atheris"


_WITHOUT_COVERAGE = ", which do not see what an input reaches (make fuzz installs atheris, where that is possible)"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile bytes for every decoder.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="part of a target's name (default: all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="per target (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search (default: %(default)d)")
    parser.add_argument("--engine", choices=ENGINES, default=DEFAULT, help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the first TARGET on this saved input")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """0: nothing found."""
    arguments = _arguments(argv)
    wanted = [name for name in TARGETS if not arguments.targets or any(part in name for part in arguments.targets)]
    if not wanted:
        print(f"no such target: {', '.join(arguments.targets)}", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(wanted))
        return 0
    targets = [TARGETS[name] for name in wanted]
    if arguments.replay:
        print(f"{targets[0].name}: {check(targets[0], arguments.replay.read_bytes()) * 1000:.1f} ms")
        return 0
    print(f"engine: {arguments.engine}{'' if arguments.engine == 'atheris' else _WITHOUT_COVERAGE}", flush=True)
    return 0 if ENGINES[arguments.engine](targets, arguments.seconds, arguments.seed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
