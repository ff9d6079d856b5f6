"""Operators without state: map, filter, expand, screen, union."""
