"""Which parts a source had: offsets and positions are numbers of parts, so these must not shift."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.engines.checkpoint.sealed import seal, unseal
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError
from anabranch.io.source import Source

PARTS = "sources.json"


def require_same_parts(storage: Storage, sources: Mapping[str, Source], *, ended: bool) -> None:
    """Refuse to go on when parts went away, changed places or came in between; remember new ones.

    Parts that come behind those of the run before are read as the stream goes on, unless it has
    ended: what it had to say at its end was said.
    """
    now = {name: list(source.parts()) for name, source in sources.items()}
    data = storage.read(PARTS)
    before = now if data is None else unseal(data, storage.named(PARTS))
    for name, parts in now.items():
        known = before.get(name, [])
        if parts[: len(known)] != known:
            shifted = next(n for n, part in enumerate(known) if parts[n : n + 1] != [part])
            found = repr(parts[shifted]) if shifted < len(parts) else "nothing"
            raise StateError(
                name,
                f"part {shifted} to be {known[shifted]!r}, as when the run began",
                found,
                "give new files names that sort behind the others, put files back that are "
                "missing, or start afresh in a new checkpoint directory",
            )
        if ended and len(parts) > len(known):
            raise StateError(
                name,
                f"the {len(known)} parts of the run, which has ended",
                f"{len(parts) - len(known)} more, such as {parts[len(known)]!r}",
                "read them in a new checkpoint directory",
            )
    if data is None or before != now:
        storage.write(PARTS, seal(now), durable=True)
