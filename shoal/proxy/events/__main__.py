"""Prints docs/events.md."""

from shoal.proxy.events.page import page

print(page(), end="")
