"""Operators: what the author writes and what is built in, one per file."""
