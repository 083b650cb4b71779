"""`make demo`: MirrorMaker 2 alone and through Shoal, side by side on real brokers.

    plan -> demo (all rounds) -> mirror_run (one run: a fresh mirror, with or without Shoal) -> measure -> report
                                                                                        report -> table, page

`plan` has the figures and the mirror's settings, `proxies` the Shoal of each run. `ends` looks up end offsets, `phases`
prints progress, and `command` has what the demos share as commands.
"""
