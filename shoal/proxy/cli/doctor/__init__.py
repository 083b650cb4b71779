"""`shoal check`: a MirrorMaker 2 configuration -> what must change before it mirrors through Shoal.

    file -> properties -> mirror (each client's effective values) -> *_rules -> findings -> render

`check` runs all rules for every flow; `destinations` knows which address belongs to which listener.
"""

from shoal.proxy.cli.doctor.check import Report, check_mirror
from shoal.proxy.cli.doctor.client_security import ClientSecurity, Needed, needed_security
from shoal.proxy.cli.doctor.destinations import ShoalListeners, client_address
from shoal.proxy.cli.doctor.finding import Finding, Severity
from shoal.proxy.cli.doctor.mirror import Mirror, read_mirror
from shoal.proxy.cli.doctor.properties import Unreadable, decoded
from shoal.proxy.cli.doctor.render import render
from shoal.proxy.cli.doctor.value_rules import needed

__all__ = [
    "ClientSecurity",
    "Finding",
    "Mirror",
    "Needed",
    "Report",
    "Severity",
    "ShoalListeners",
    "Unreadable",
    "check_mirror",
    "client_address",
    "decoded",
    "needed",
    "needed_security",
    "read_mirror",
    "render",
]
