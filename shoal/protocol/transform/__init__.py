"""Edits of answers that every listener makes.

    held answer     -> addresses: brokers' hosts and ports become those of the listener
    streamed answer -> skim: takes addresses out while it passes; watch: also notes what was given to whom

A streamed answer is one that is too large to hold. Its length must stay the same.
"""
