"""What a proxy costs: `make bench`. Each path to the same broker in turn, over several rounds.

workloads    what is forwarded, and over which path
schedule     the order of the runs
connections  new connections, and memory with idle ones
index        the traffic index alone
report       medians, as JSON and as tables
by_peer      the same, one column per proxy
baseline     the ratios of this run and those that are kept in `bench/baseline.json`
"""
