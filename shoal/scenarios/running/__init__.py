"""Shoal as a process, as operators start it: `shoal mirror` by flags (`shoal_mirror`), `shoal run` with a file
(`shoal_run`); `cluster_toml` writes a cluster's TLS and SASL into that file.
"""
