"""An envelope must never land in a topic: rules for when the fetch side may wrap.

    a flow (a mirror's consumer) is served raw -> its records come back at the target (proving, proof_round, tokens)
    -> the topic is proven for this flow -> envelopes

`rules` is the interface that the proxy calls (hold, review, commit), `evidence` its implementation. `flow` and `flows`
are the consumers, `positions` what each may have read raw, `way_back` how a token came back, `limits` the bounds and
times, `explain` the messages for the operator.
"""
