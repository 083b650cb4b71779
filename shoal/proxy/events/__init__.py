"""Shoal's log: the lines, and what each event's id and fields mean.

    logs.py      one log line for people or as JSON, and how often one of a kind is written
    fields.py    each field once: its kind and its meaning, the same in all events
    table.py     each event once: id, levels, fields, meaning, what to do
    page.py      the tables as Markdown: python -m shoal.proxy.events > docs/events.md

A log call names its event by id (`log.warning("draining", extra=event("a sentence", seconds=5.0))`), and only tests and
the page read these tables: `tests/proxy/events` compares them with all log calls, and the log lines of other tests with
them. Ids, fields and codes are stable: programs read them. Sentences are for people, and may change.
"""
