"""A run as a web page: a small server on this machine, and the page that it shows."""

from anabranch.view.web.server import DEFAULT_PORT, Dashboard, serve

__all__ = ["DEFAULT_PORT", "Dashboard", "serve"]
