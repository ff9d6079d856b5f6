"""STRETCH: its model, and figures 3 to 5 on this machine's threads."""
