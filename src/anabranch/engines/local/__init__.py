"""The local engine: threads of one process, joined by elastic gates."""
