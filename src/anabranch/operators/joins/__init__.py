"""Joins: by key, by any predicate, and with a small table."""
