"""Applications, one per file: `build(...) -> Flow`, each to be read as an example.

`build` needs no argument. If it takes `input` (files to read) or `rows` (how much to generate, None
for an endless stream), the command line offers them; a function `summary(table) -> str` says what
was found, from all that the application's first sink got.
"""

from __future__ import annotations

from types import ModuleType

from anabranch.apps import band_join, hashtag_sequences, word_count
from anabranch.errors import UnknownNameError

APPS: dict[str, ModuleType] = {
    "word-count": word_count,
    "band-join": band_join,
    "hashtag-sequences": hashtag_sequences,
}


def app(name: str) -> ModuleType:
    """The application of a name.

    Example:
        >>> app("word-count").__name__
        'anabranch.apps.word_count'
    """
    if name not in APPS:
        raise UnknownNameError(
            name,
            f"an application among {list(APPS)}",
            repr(name),
            "see `anabranch apps`, or give your own flow as module:flow",
        )
    return APPS[name]
