"""What a wrapping listener knows of its source and its mirrors, from all connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.proxy.shallow.cluster_pair import ClusterPair
    from shoal.proxy.shallow.counters import ShallowTally
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.shallow.wrap.followed import FollowedFetches
    from shoal.proxy.shallow.wrap.mirror_fetch import Unseen
    from shoal.proxy.shallow.wrap.same_offsets import SameOffsets

__all__ = ["SourceKnowledge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKnowledge:
    """`clusters`: the listener's own and its pair's; None without a pair."""

    tally: ShallowTally
    interlock: Interlock
    clusters: ClusterPair | None
    unseen: Unseen
    followed: FollowedFetches
    same_offsets: SameOffsets
