"""Who may see the page, and who may change anything through it.

On a loopback address whoever uses this machine may look; what has to be kept out are other web
pages in the user's browser. They can name this server under a host name of their own (hence the
look at `Host`) and can send requests blindly (hence a header that they cannot send unasked). On
any other address nothing is answered without a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.cookies import CookieError, SimpleCookie
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from anabranch.errors import EngineError, Subject

LEAST_TOKEN = 8
MARK = "X-Anabranch"
"""A header that a page of another site cannot send without asking, and is never allowed to."""
Headers: TypeAlias = "Message[str, str] | Mapping[str, str]"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Refused:
    """An answer other than what was asked for."""

    status: int
    why: str


class Access:
    """What stands in front of every request.

    Args:
        address: Where the server listens.
        token: What has to be shown; made up where one is needed and none is given.
        port: Where it listens; browsers keep cookies of all ports together.

    Example:
        >>> Access("127.0.0.1", None, 80).refusal({"Host": "localhost:80"}, "/") is None
        True
        >>> Access("127.0.0.1", None, 80).refusal({"Host": "evil.example"}, "/")
        Refused(status=403, why='this page is called 127.0.0.1, not evil.example')
        >>> Access("0.0.0.0", "open sesame", 80).refusal({"Host": "10.0.0.1"}, "/").status
        401
    """

    def __init__(self, address: str, token: str | None, port: int) -> None:
        self._names = {*LOOPBACK_NAMES, address}
        if token is not None and len(token) < LEAST_TOKEN:
            raise EngineError(
                Subject("argument", "token"),
                f"a token of at least {LEAST_TOKEN} letters",
                f"one of {len(token)}",
                "leave it out for a random one",
            )
        self.token = token or (None if is_loopback(address) else secrets.token_urlsafe(24))
        self._cookie = f"anabranch-{port}"

    def refusal(self, headers: Headers, path: str) -> Refused | None:
        """Why a request is not answered; None if it is."""
        if self.token is None:
            name = _host(headers.get("Host", ""))
            if name in self._names:
                return None
            return Refused(403, f"this page is called 127.0.0.1, not {name or 'nothing'}")
        shown = self._shown(headers, path)
        if any(hmac.compare_digest(each.encode(), self.token.encode()) for each in shown):
            return None
        return Refused(401, "this page needs its token: open the address that was printed")

    def change_refusal(self, headers: Headers) -> Refused | None:
        """Why a request that changes something is refused, beyond `refusal`; None if it is not."""
        origin = headers.get("Origin")
        if origin is not None and _place(origin) != headers.get("Host"):
            return Refused(403, "changes are made from this page, not from another one")
        if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return Refused(403, "changes are made from this page, not from another one")
        if headers.get(MARK) is None:
            return Refused(403, f"changes need the header {MARK}")
        if headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            return Refused(415, "changes are sent as application/json")
        return None

    def cookie(self, path: str) -> str | None:
        """A cookie for a browser that showed the token in the address; None for the others."""
        if self.token is None or "token" not in parse_qs(urlsplit(path).query):
            return None
        return f"{self._cookie}={self.token.encode().hex()}; HttpOnly; SameSite=Strict; Path=/"

    def _shown(self, headers: Headers, path: str) -> list[str]:
        """All tokens that a request shows: in the address, as bearer, as cookie."""
        shown = parse_qs(urlsplit(path).query).get("token", [])
        scheme, _, credential = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            shown.append(credential.strip())
        try:
            kept = SimpleCookie(headers.get("Cookie", "")).get(self._cookie)
            if kept is not None:
                shown.append(bytes.fromhex(kept.value).decode())
        except (CookieError, ValueError):
            pass  # somebody else's cookie: it shows nothing
        return shown


def _host(place: str) -> str:
    """The name in a `Host`, without its port; nothing if it is none."""
    try:
        return urlsplit("//" + place).hostname or ""
    except ValueError:
        return ""


def _place(address: str) -> str | None:
    """Host and port of an address; None if it is none."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address.

    Example:
        >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "host")]
        [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
