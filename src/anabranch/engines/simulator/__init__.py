"""The simulator: runs a plan in virtual time, on machines that need not exist."""
