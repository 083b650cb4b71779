"""What a broker counts of itself, by JMX: the cluster was started with `ClusterSpec(jmx=True)`.

Each look starts a Java program for about a second: take it before and after what is measured, not meanwhile.
"""

from .broker import Node
from .errors import ToolFailed
from .java.tools import run_tool
from .ports import LOOPBACK

_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request={},version=*"  # kafka.network.RequestChannel


async def requests(node: Node, name: str) -> int:
    """How many requests of an API ("Produce") of all versions the broker has got since its start. Raises ToolFailed."""
    return sum(map(int, await attribute(node, _REQUESTS.format(name), "Count")))


async def attribute(node: Node, objects: str, name: str) -> list[str]:
    """An attribute of every MBean that the name pattern fits, as text; none: it has not been counted yet. Raises ToolFailed."""
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
