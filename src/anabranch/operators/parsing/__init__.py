"""Texts to columns: JSON, CSV and system logs."""
