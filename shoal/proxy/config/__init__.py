"""The operator's configuration becomes frozen, validated settings.

    shoal.toml -> toml   --+-- schema (keys and types of settings) -- parse --> rules -> settings
    flags      -> cli/   --+

`quantities` prints numbers. `identity` has this Shoal's version and host name. `secret` reads passwords and private
files when they are needed, and `reread` shows whether a file has changed. All `problems` are reported together,
each with its path in the file or its flag. `changes` says how a reload applies each setting, and `shares` divides
limits among workers.
"""
