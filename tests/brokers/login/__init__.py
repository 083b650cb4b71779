"""Shoal logs in at real brokers, and its clients need no credentials."""
