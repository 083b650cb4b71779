"""Operators' tools and secrets on a secured cluster."""
