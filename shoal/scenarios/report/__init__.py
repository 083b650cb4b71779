"""A page about a run: report (facts, charts, tables) -> page (one HTML file) and charts (PNG files)."""
