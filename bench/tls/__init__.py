"""`make bench-tls`: what TLS costs in Shoal and in other proxies, side by side.

load client ──plaintext or TLS──► proxy ──plaintext or TLS──► a real broker with both kinds of listener

runs         what is measured; forwarding and lone requests are those of `make bench`
openssl      the same records through OpenSSL alone: no proxy can cost less
profile      the share of each library in a proxy's CPU time, where `perf` works
report       medians, as JSON and as tables

The proxies, their keys and where a path has TLS are in `bench.proxies`.
"""
