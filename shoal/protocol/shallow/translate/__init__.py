"""Offsets of source records at the target, and back.

    Produce answer ──> appended ranges ──> OffsetMap ──> Question ──> Answer: exact, or between two bounds
                                                            │
                       records read on both sides ── align ─┘ makes bounds exact

`offset_map` holds which source offsets have which target offsets, as far as Shoal appended the records itself: those of
envelopes. Records that a mirror copied raw lie between two ranges; their offsets have bounds. `question` answers for
one partition. `align` finds the exact offset inside the bounds, by the records that are there on both sides.
"""
