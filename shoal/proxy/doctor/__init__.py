"""`shoal check`: a MirrorMaker 2 configuration -> what must change before it mirrors through Shoal.

`properties` reads the file, `mirror` knows which value each client really gets, `*_rules` judge, `render` tells.
"""

from shoal.proxy.doctor.check import Report, check_mirror
from shoal.proxy.doctor.finding import Finding, Severity
from shoal.proxy.doctor.mirror import Mirror, connect_mirror, dedicated_mirror
from shoal.proxy.doctor.places import Shoal
from shoal.proxy.doctor.properties import Unreadable, read_connector, read_properties
from shoal.proxy.doctor.render import render

__all__ = [
    "Finding",
    "Mirror",
    "Report",
    "Severity",
    "Shoal",
    "Unreadable",
    "check_mirror",
    "connect_mirror",
    "dedicated_mirror",
    "read_connector",
    "read_properties",
    "render",
]
