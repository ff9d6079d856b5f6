"""Tuple style: an author's code sees the tuples of one key at a time."""
