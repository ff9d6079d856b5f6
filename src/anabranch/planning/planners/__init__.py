"""Planners, one file each; `registry.py` has them by name."""
