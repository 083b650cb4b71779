"""`shoal spark coalescing`: the effect of coalescing on captured produce requests, for many policies at once.

    rows -> arrivals (arrays of one broker) -> lanes (the policy as compiled loops) -> prediction -> report

`by_joiner` does the same with the proxy's own joiner, which is the reference. `policies` are the options on the command
line. `compiled` is numba where it is installed, `latencies` counts microseconds in bins.
"""
