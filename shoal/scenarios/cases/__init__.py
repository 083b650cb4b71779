"""The scenarios, one file each: `shoal replay NAME`, `make scenarios` for all of them."""

from collections.abc import Mapping
from types import MappingProxyType

from shoal.scenarios.cases import (
    broker_restart,
    bursty_night,
    captured_trace,
    mirror_catching_up,
    mirror_tailing,
    mixed_codecs,
    oldest_consumer,
)
from shoal.scenarios.replay.case import Case

__all__ = ["CASES"]

_FILES = (
    bursty_night,
    mirror_catching_up,
    mirror_tailing,
    oldest_consumer,
    mixed_codecs,
    broker_restart,
    captured_trace,
)
CASES: Mapping[str, Case] = MappingProxyType({module.CASE.name: module.CASE for module in _FILES})
