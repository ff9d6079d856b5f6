"""Anabranch: write a streaming application once; it finds out how to run it in parallel."""
