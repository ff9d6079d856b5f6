"""What a run looks like from outside: views read events, and nothing else."""
