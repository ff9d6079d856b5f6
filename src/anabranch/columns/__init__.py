"""Arrow columns: schemas, casts, JSON and CSV texts, times, keys as words, hashes."""
