"""What the command line leaves to the shell."""

from __future__ import annotations

WRONG_RESULT = 1
WRONG_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
"""As shells tell a command that SIGINT or SIGTERM has ended: 128 and the number of the signal."""
