"""The proxies that the benchmarks compare, each a process of its own: HAProxy, Kroxylicious, kafka-proxy and Shoal.

names        their names in tables
peer         what the load client connects to; Shoal with one listener of any mode
placements   where the connections of a path have TLS
materials    keys and certificates of a run
configs      the configuration of each proxy: a listener per placement
kroxylicious its jars, from Maven Central
start        starts a proxy with these listeners, or says why there is none
descriptors  how many connections the limit of open files allows
"""
