"""An envelope must never be stored in a topic: rules for when the fetch side may wrap.

    a flow (a mirror's consumer) gets raw records -> they come back at the target (proving, proof_round, tokens)
    -> the topic is proven for this flow -> envelopes

`rules` is the interface for the proxy (hold, review, commit), `evidence` implements it. `flow` and `flows` are the
consumers, `positions` what each may have read raw, `way_back` how a token came back, `limits` the limits and times,
`explain` the messages for the operator.
"""
