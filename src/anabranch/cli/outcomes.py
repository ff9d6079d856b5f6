"""What the command line leaves to the shell."""

from __future__ import annotations

WRONG_RESULT = 1
WRONG_INPUT = 2
INTERRUPTED = 130
