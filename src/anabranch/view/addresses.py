"""Where a server of this process is found, as an address for a browser."""

from __future__ import annotations

import socket

EVERYWHERE = ("0.0.0.0", "::", "")
"""Addresses to listen at that are no address to ask for."""


def url_of(address: str, port: int) -> str:
    """How to reach a server that listens at an address; by this machine's name if at all of them.

    Example:
        >>> url_of("127.0.0.1", 80), url_of("::1", 80)
        ('http://127.0.0.1:80', 'http://[::1]:80')
    """
    host = socket.gethostname() if address in EVERYWHERE else address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
