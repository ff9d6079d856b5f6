"""Joker's figures on the simulator, beside what the paper tells."""
