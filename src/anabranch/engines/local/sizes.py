"""What a source tells of its parts: asked by who can wait for the answer, remembered for others.

A source may have to ask a server, and that may hang. So nobody asks under a lock that others need,
and whoever must not wait gets the last answer.
"""

from __future__ import annotations

from threading import Lock, Thread

from anabranch.io.source import Extent, Source

SOON_S = 0.2
"""How long to wait for news of a source before the last news have to do."""


class Sizes:
    """The extents of all parts of a source.

    Args:
        source: Who is asked.

    Example:
        >>> from anabranch.io import memory
        >>> sizes = Sizes(memory([{"x": 1}, {"x": 2}]))
        >>> sizes.known(0), sizes.ask(0).rows, sizes.known(0).rows
        (None, 2, 2)
    """

    def __init__(self, source: Source) -> None:
        self._source, self._parts = source, source.parts()
        self._known: dict[int, Extent] = {}
        self._one_by_one = Lock()  # a source need not answer several threads at a time
        self._asking: Thread | None = None
        self._failed = False

    def known(self, part: int) -> Extent | None:
        """The last answer, if there was one."""
        return self._known.get(part)

    def settled(self, part: int) -> bool:
        """Whether asking again can tell nothing new."""
        known = self._known.get(part)
        return known is not None and known.exact

    def ask(self, part: int) -> Extent:
        """Ask; takes as long as the source takes, and raises what it raises."""
        with self._one_by_one:
            told = self._known[part] = self._source.extent(self._parts[part])
        return told

    def soon(self) -> list[Extent] | None:
        """All of them, as new as a short wait allows; None where somebody cannot say."""
        if not all(map(self.settled, range(len(self._parts)))):
            if self._asking is None or not self._asking.is_alive():
                self._asking = Thread(target=self._ask_all, name="sizes", daemon=True)
                self._asking.start()
            self._asking.join(SOON_S)
        known = [self._known[part] for part in range(len(self._parts)) if part in self._known]
        return None if self._failed or len(known) < len(self._parts) else known

    def _ask_all(self) -> None:
        try:
            for part in range(len(self._parts)):
                if not self.settled(part):
                    self.ask(part)
            self._failed = False
        except Exception:  # whoever reads the source will say what is wrong with it
            self._failed = True
