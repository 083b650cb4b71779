"""Traffic through Shoal on real clusters, and the tools for captured traffic.

    demo, demo_offsets    a mirror with and without Shoal; one that keeps the source's offsets
    demo_capture          captured traffic, analysed
    replay                `shoal replay`: the scenarios of `cases`, or a capture
    capture               `shoal capture`: captured files as tables
    jobs                  `shoal spark`: analyses of captured traffic
    kafka                 real brokers and mirrors on this machine
    running               Shoal as a process beside them

`table`, `spread`, `progress` and `memory` are small helpers.
"""
