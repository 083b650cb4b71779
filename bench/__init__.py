"""Side-by-side benchmarks on this machine, with real brokers: each folder is one of them, started by `make`.

overhead/  `make bench`: CPU, latency and memory of Shoal, other proxies and a direct connection
compare/   `make bench-compare`: this tree's Shoal and that of another commit
proxies/   the proxies that are compared
command    the command line that the benchmarks have in common
load       the load client
stage      the topics and requests
runs       one run of a workload
"""
