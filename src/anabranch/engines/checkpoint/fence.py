"""The fence: of all runs that believe they own a checkpoint, the one that came last does.

A run that was given up may still be alive (the JVM of a killed driver, a machine that was cut
off). It finds another token than its own before it can commit anything.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from anabranch.engines.checkpoint.sealed import seal, unseal
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError, Subject

FENCE = "fence.json"


@dataclass(frozen=True)
class Fence:
    """The claim of one run.

    Attributes:
        storage: The checkpoint.
        token: A number that counts runs, for people, and random digits, which no two runs share.
    """

    storage: Storage
    token: str

    @staticmethod
    def take(storage: Storage) -> Fence:
        """Take the checkpoint over; whoever had it fails at its next check."""
        number = int((_holder(storage) or "0").split("-")[0])
        token = f"{number + 1}-{secrets.token_hex(6)}"
        storage.write(FENCE, seal({"token": token}))
        return Fence(storage, token)

    def check(self) -> None:
        """Raise unless this run still owns the checkpoint."""
        holder = _holder(self.storage)
        if holder != self.token:
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"to be owned by this run ({self.token})",
                f"{holder or 'no readable fence'}: another run took over",
                "let one run at a time use a checkpoint directory; this one has stopped",
            )


def _holder(storage: Storage) -> str | None:
    """The token in force; None when there is none that can be read."""
    data = storage.read(FENCE)
    if data is None:
        return None
    try:
        return str(unseal(data, storage.named(FENCE))["token"])
    except (StateError, KeyError):
        # Its loss costs nothing: the next run takes a new token, and this one stops.
        return None
