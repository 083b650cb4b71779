"""What a job gives to people: tables -> report (facts, charts, tables) -> page (one HTML file) and charts (PNG files)."""
