"""Says on a page which of its code no test runs, and why not."""

from __future__ import annotations

import re

MARK = re.compile(r"^<!-- not run: (.+?) -->\n+", re.MULTILINE)


def mark(reason: str) -> str:
    """What stands above a block that is not run; a reader of the source sees it, too."""
    return f"<!-- not run: {reason} -->"


def made_visible(markdown: str) -> str:
    """A page with its marks as lines that can be read."""
    return MARK.sub(r"Not run by the tests: \1.\n{ .not-run }\n\n", markdown)
