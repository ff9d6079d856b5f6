"""Applications, one per file: `build(...) -> Flow`, each to be read as an example."""

from __future__ import annotations

from types import ModuleType

from anabranch.apps import word_count
from anabranch.errors import UnknownNameError

APPS: dict[str, ModuleType] = {"word-count": word_count}


def app(name: str) -> ModuleType:
    """The application of a name.

    Example:
        >>> app("word-count").__name__
        'anabranch.apps.word_count'
    """
    if name not in APPS:
        raise UnknownNameError(
            name,
            f"an application among {sorted(APPS)}",
            repr(name),
            "see `anabranch apps`, or give your own flow as module:flow",
        )
    return APPS[name]
