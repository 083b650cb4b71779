import subprocess
from functools import partial
from pathlib import Path

import pytest
import trio

from bench.compare.commit import ROOT, Tree, checked_out, extracted
from bench.compare.report import COMMIT, CPU_GIB, P50, THIS, Measured, as_json, as_tables, verdict
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.spread import Spread

in_a_clone = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is no history")
FOUND = {
    "fetch": Measured(part="fetch", unit=CPU_GIB, values={THIS: [1.2, 9.0, 1.0], COMMIT: [1.0, 7.5, 1.0]}),
    "a lone Fetch": Measured(part="latency", unit=P50, values={THIS: [-1.0, 20.0], COMMIT: [10.0, 10.0]}),
    "produce": Measured(part="produce", unit=CPU_GIB, values={THIS: [None], COMMIT: [None]}),
}


def test_ratios_are_by_round_and_the_figures_are_medians() -> None:
    workloads = as_json(FOUND, {})["workloads"]
    assert workloads["fetch"] == {
        "unit": CPU_GIB,
        THIS: 1.2,
        COMMIT: 1.0,
        "ratio": {"median": 1.2, "low": 1.0, "high": 1.2},
        "rounds": 3,
    }
    assert workloads["a lone Fetch"]["ratio"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert workloads["a lone Fetch"]["rounds"] == 1
    assert workloads["produce"]["ratio"] is None


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ((1.1, 1.05, 1.2), "slower"),
        ((1.1, 0.99, 1.2), ""),
        ((1.04, 1.01, 1.05), ""),
        ((0.9, 0.8, 0.95), "faster"),
        ((0.9, 0.8, 1.01), ""),
        ((0.96, 0.94, 0.99), ""),
    ],
)
def test_the_verdict_needs_the_spread_on_one_side_and_five_rounds(ratio: tuple[float, float, float], said: str) -> None:
    assert verdict(Spread(*ratio), 5) == said
    assert verdict(Spread(*ratio), 4) == ""


def test_the_table_has_the_ratio_with_its_spread_and_what_is_left_out() -> None:
    report = as_json(FOUND, {"wrap": "abc does not start"}, this="def", commit="abc")
    lines = as_tables(report).splitlines()
    assert ["fetch", "CPU", "s/GiB", "1.00", "1.20", "1.200", "1.000", "1.200"] in [line.split() for line in lines]
    assert lines[0].startswith("def against abc")
    assert lines[-1] == "left out: wrap: abc does not start"


def test_nothing_but_the_package_of_the_tree_runs(tmp_path: Path) -> None:
    package = tmp_path / "shoal"
    package.mkdir()
    (package / "__init__.py").touch()
    tree = Tree(name="old", path=tmp_path)
    run = partial(subprocess.run, [*tree.program, "run"], capture_output=True, text=True, check=False)
    assert "No module named shoal.__main__" in run().stderr
    (package / "__main__.py").write_text("import sys\nprint(sys.argv)\nimport shoal.proxy\n")
    assert run().stdout == f"['{package / '__main__.py'}', 'run']\n"
    assert "No module named 'shoal.proxy'" in run().stderr


@in_a_clone
def test_a_commit_is_extracted_once(tmp_path: Path) -> None:
    first = trio.run(extracted, "HEAD", tmp_path)
    assert (first.path / "shoal" / "__main__.py").is_file()
    assert checked_out().name.startswith(first.name)
    again = trio.run(extracted, "HEAD", tmp_path)
    assert (first.reused, again.reused) == (False, True)
    assert again.path == first.path


@in_a_clone
@pytest.mark.parametrize("revision", ["no-such-branch", "--output=/tmp/x"])
def test_what_is_no_commit_is_an_error(revision: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="failed"):
        trio.run(extracted, revision, tmp_path)
