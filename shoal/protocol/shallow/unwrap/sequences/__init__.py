"""The sequence numbers of batches at the target: `own`, with Shoal's producer ids; `mirror`, those of an idempotent or
transactional mirror, whose map is kept in `slots`."""
