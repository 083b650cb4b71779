"""Broker metrics over JMX, for a cluster started with `ClusterSpec(jmx=True)`.

Each query starts a Java program for about a second: query before and after a measurement, not during it.
"""

from .broker import Node
from .errors import ToolFailed
from .java.tools import run_tool
from .ports import LOOPBACK

_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request={},version=*"  # kafka.network.RequestChannel


async def requests(node: Node, name: str) -> int:
    """Requests of one API ("Produce"), all versions, since the broker's start. Raises ToolFailed."""
    return sum(map(int, await attribute(node, _REQUESTS.format(name), "Count")))


async def attribute(node: Node, objects: str, name: str) -> list[str]:
    """An attribute of every MBean that matches the pattern, as text; empty before a first count. Raises ToolFailed."""
    url = f"service:jmx:rmi:///jndi/rmi://{LOOPBACK}:{node.settings.ports.jmx}/jmxrmi"
    arguments = ("--jmx-url", url, "--object-name", objects, "--attributes", name, "--one-time")
    try:
        printed = await run_tool("JmxTool", *arguments, "--report-format", "properties")
    except ToolFailed as error:
        if "No matched attributes" in str(error):
            return []
        raise
    mark = f":{name}="
    return [line.partition(mark)[2] for line in printed.splitlines() if mark in line]
