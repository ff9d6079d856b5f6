"""Engines run plans; what they share stands here."""
