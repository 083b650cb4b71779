"""Reports of a job: tables -> report (facts, charts, tables) -> page (one HTML file) and charts (PNG files)."""
