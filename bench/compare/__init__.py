"""`make bench-compare`: the Shoal of this tree and that of another commit, in turns, in front of the same broker.

Only the proxy differs: this tree's load client sends the same requests through both. A round runs each workload on
both, one after the other, and the next round in the other order. The result is the ratio of each round.

commit   the `shoal` package of the commit, beside this tree
launch   runs this package, in a process of its own
sides    the two Shoals
turns    the order of the runs
report   ratios and their spread, as JSON and as a table
"""
