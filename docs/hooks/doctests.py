"""Lets the reference show examples of docstrings as code.

The library writes `Example:`, which its reader of docstrings takes for a note in prose; what it
takes for doctests is called `Examples:`.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

HEAD = re.compile(r"^Example:$", re.MULTILINE)


class Doctests(Extension):
    """Renames the section, on the way into the site only."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """See each object once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = HEAD.sub("Examples:", obj.docstring.value)
