"""Planners, a family per file; `registry.py` has them by name."""
