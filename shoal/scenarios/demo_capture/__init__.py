"""`make demo-capture`: traffic of a real run is captured, then analysed with Spark.

    traffic (clients and a mirror) -> captured (through a Shoal with capture) -> jobs -> report

`captured` runs the broker, Shoal and the clients, `jobs` the analyses, and `report` prints their results.
"""
