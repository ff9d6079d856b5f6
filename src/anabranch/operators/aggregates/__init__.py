"""Aggregates and windows."""
