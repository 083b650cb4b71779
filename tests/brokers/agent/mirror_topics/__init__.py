"""Mirror topics of the agent: the leader appends batches at the offsets of their source."""
