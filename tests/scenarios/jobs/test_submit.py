"""`shoal spark`, in process and as on a cluster: with an executor that has the zip and nothing else of Shoal."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import main
from shoal.scenarios.jobs.arguments import parse
from shoal.scenarios.jobs.submit import command, package_zip
from tests.scenarios.jobs.captures import one_chunk, write_index
from tests.scenarios.jobs.outputs import check_outputs
from tests.support.captures.synthetic import Traffic, chunks
from tests.support.captures.synthetic_mirror import Faults, mirrored

QUICK = ("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.log.level=ERROR")


def on_a_cluster(job: str, directory: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """An executor in another process that has our package from the zip only. -> its exit code and report."""
    given = [job, str(directory / "index"), str(directory / "out"), "--master", "local-cluster[1,2,1024]"]
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = "import sys; from shoal.__main__ import main; main()"
    command = [sys.executable, "-c", run, "spark", *given, *QUICK, *arguments]
    done = subprocess.run(command, env=elsewhere, capture_output=True, text=True, timeout=300)
    report = directory / "out" / "report.json"
    assert report.exists(), done.stderr
    check_outputs(job, directory / "out")
    return done, json.loads(report.read_text())


@pytest.mark.spark
def test_a_job_runs_on_a_cluster_with_our_package_as_a_zip(tmp_path: Path) -> None:
    copy = mirrored(one_chunk(2_000), Faults(missing=1))
    write_index(tmp_path / "index", copy.both)
    done, report = on_a_cluster("audit", tmp_path)
    assert done.returncode == 1, done.stderr
    assert "missing: " in done.stdout
    assert report["audit"]["missing"] == copy.missing["record_count"].sum()


@pytest.mark.spark
def test_rows_are_folded_by_executors(tmp_path: Path) -> None:
    chunk = one_chunk(3_000)
    write_index(tmp_path / "files", chunk)
    assert main(["capture", "compact", str(tmp_path / "files"), "--out", str(tmp_path / "index")]) == 0
    done, report = on_a_cluster("batch-sizes", tmp_path)
    assert done.returncode == 0, done.stderr
    found = report["batch_sizes"]
    assert (found["batches"], found["records"]) == (3_000, chunk.rows["record_count"].sum())
    assert found["requests"] == len({(row["connection"], row["request"]) for row in chunk.rows})


@pytest.mark.spark
def test_policies_are_compiled_on_executors(tmp_path: Path) -> None:
    [chunk] = chunks(Traffic(rows=2_000, seconds=400.0))
    write_index(tmp_path / "index", chunk)
    policies = ("linger=100ms,group=broker", "linger=0ms,group=broker")
    done, report = on_a_cluster("coalescing", tmp_path, *(part for policy in policies for part in ("--policy", policy)))
    assert done.returncode == 0, done.stderr
    assert "Open loop" in done.stdout
    much, little = report["coalescing"]
    requests = len({(row["connection"], row["request"]) for row in chunk.rows})
    assert (much["policy"], little["policy"], much["captured"]) == (*policies, requests)
    assert much["requests_saved"] > 0.1 > little["requests_saved"]


@pytest.mark.spark
def test_a_stream_keeps_its_state_on_executors(tmp_path: Path) -> None:
    chunk = one_chunk(2_000)
    write_index(tmp_path / "index", chunk)
    done, report = on_a_cluster("cascade", tmp_path, "--buckets", "4")
    assert done.returncode == 0, done.stderr
    assert report["cascade"]["levels_equal"]


def test_the_zip_has_all_modules_of_ours(tmp_path: Path) -> None:
    names = zipfile.ZipFile(package_zip(tmp_path / "shoal.zip")).namelist()
    assert {"shoal/__init__.py", "shoal/scenarios/capture/decode.py", "shoal/scenarios/jobs/source/source.py"} <= set(
        names
    )
    assert all(name.startswith("shoal/") and name.endswith(".py") for name in names)


def test_spark_submit_gets_what_it_must_know_and_the_job_the_rest(tmp_path: Path) -> None:
    given = parse(
        ["audit", "in", "out", "--master", "spark://h:7077", "--topics", "a,b", "--conf", "x=1", "--target", "t"]
    )
    assert given.master is not None
    line = command(given.for_submit, given.master, given.settings, tmp_path)
    assert line[1:5] == ["--master", "spark://h:7077", "--conf", "x=1"]
    assert line[5:7] == ["--py-files", str(tmp_path / "shoal.zip")]
    assert line[8:] == ["audit", "in", "out", "--topics", "a,b", "--target", "t"]


def test_without_java_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["spark", "audit", "a", "b"]) == 2
    assert "shoal: error: shoal spark: needs Java 17 or later" in capsys.readouterr().err


def test_without_the_extra_the_command_says_so() -> None:
    run = (
        "import sys; sys.modules['pyspark'] = None; sys.argv[1:] = ['spark', 'audit', 'a', 'b']; import shoal.__main__ "
        "as m; m.main()"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "shoal spark: needs pyspark" in done.stderr
    assert "pip install 'numpy" in done.stderr
    assert "'pyspark[sql]" in done.stderr
