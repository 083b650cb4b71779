"""Rules about several settings at once: what cannot work together, and what works but is perhaps not meant.

consistency  all rules, for TOML and for flags; those of one table are in `access`, `login`, `sasl`, `security`
doubts       warnings
"""
