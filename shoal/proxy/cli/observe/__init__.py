"""Commands that ask a running Shoal: `shoal clients`, `shoal status` and `shoal top`.

    flags -> question: the admin listener's address, one GET -> documents: its JSON, checked -> tables or lines

What the admin listener answers has texts of clients and brokers: `printable` escapes what a terminal would obey.
`problems` judges a status.
"""
