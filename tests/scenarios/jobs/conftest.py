"""One Spark session for all tests of this package. Tests that use it are marked `spark` here."""

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from shoal.scenarios.jobs.session import session

QUICK = {  # a short run never repays the C2 compiler; two partitions suffice for two cores
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",  # compiling a query takes longer than running it on some thousand rows
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {**QUICK, "spark.sql.warehouse.dir": str(warehouse)}
    spark = session("tests", master="local[2]", settings=settings)
    yield spark
    spark.stop()
