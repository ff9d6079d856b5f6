"""Arrow columns: schemas, casts, type inference, keys as words, hashes; below io and operators."""
