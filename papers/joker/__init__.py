"""Joker's figures on the simulator."""
