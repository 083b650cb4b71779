"""`make demo`: MirrorMaker 2 alone and through Shoal, side by side on real brokers.

    plan -> story (all runs) -> scene (one run: a fresh mirror, with or without Shoal) -> measure -> report

`plan` has the figures and the mirror's settings, `ends` asks for end offsets, `segments` reads log segments from
disk, `phases` prints progress, `shoal_mirror` starts `shoal mirror`.
"""
