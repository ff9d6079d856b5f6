"""Policies, one per file."""
