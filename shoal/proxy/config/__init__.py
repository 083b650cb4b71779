"""What the operator writes becomes frozen, validated settings.

    shoal.toml -> toml   --+-- schema (keys and types of settings) -- parse --> checks -> settings
    flags      -> cli/   --+

`quantities` prints numbers. `identity` is this Shoal's name and version. All problems are reported together, each
with its path in the file or its flag.
"""
