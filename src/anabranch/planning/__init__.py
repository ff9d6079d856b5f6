"""Regions of a flow, plans that run it, and bucket maps."""
