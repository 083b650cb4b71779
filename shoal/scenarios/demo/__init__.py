"""`make demo`: MirrorMaker 2 alone and through Shoal, side by side on real brokers.

    plan -> demo (all runs) -> mirror_run (one run: a fresh mirror, with or without Shoal) -> measure -> report

`plan` has the figures and the mirror's settings, `ends` looks up end offsets, `segments` reads log segments from
disk, `phases` prints progress, `shoal_mirror` starts `shoal mirror`.
"""
