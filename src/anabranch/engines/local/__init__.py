"""The local engine: worker processes of one machine, joined by shared memory."""
