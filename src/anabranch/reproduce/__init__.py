"""The papers' claims beside what this machine shows, one module per paper."""
