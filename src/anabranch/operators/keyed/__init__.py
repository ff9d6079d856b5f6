"""Batch-style operators with columnar state, and what is built on them."""
