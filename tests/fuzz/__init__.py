"""Hostile bytes for every decoder: `python -m tests.fuzz [--seconds N] [TARGET ...]`, which `make fuzz` runs for
minutes.

The invariant: a decoder that is fed by the network returns or raises `RemoteProtocolError`, and nothing else, within
`check.CPU_LIMIT_S` of CPU time and `check.MEMORY_LIMIT` bytes.

    target.py                           what a target is
    records.py frames.py shallow.py     the targets, by part of `protocol`; to add one, add a line to its table
    targets.py                          all of them
    hostile.py                          valid inputs, mutated
    check.py                            one input against the invariant
    with_mutations.py with_atheris.py   the engines; atheris (coverage-guided, the extra `fuzz`) is used where it is
                                        installed, as `make fuzz` does; mutations where it cannot be
"""
