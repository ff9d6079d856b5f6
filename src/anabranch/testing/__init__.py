"""The public test kit: two runners that define what a flow means, and `check`."""
