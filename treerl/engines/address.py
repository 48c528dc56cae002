"""Addresses of servers, apart from what nobody but the server may read.

An address may hold a user, a password and a query such as ``?key=…``. They are taken out at once:
what is left can stand in messages, logs and run folders.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from treerl.errors import ConfigError

__all__ = ["Address", "masked", "parse_address", "without_secrets"]

_LEAST = 4  # characters of a query's value that is taken for a secret: versions are shorter


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        base: Scheme, host, port and path without ``/v1``: all that may be shown.
        auth: User and password, where the address has them.
        query: What every request carries behind its question mark; "" for nothing.
    """

    base: str
    auth: tuple[str, str] | None = field(default=None, repr=False)
    query: str = field(default="", repr=False)

    def url(self, path: str) -> str:
        """Return the whole address of a path; it may hold secrets."""
        return f"{self.base}{path}?{self.query}" if self.query else f"{self.base}{path}"

    def secrets(self) -> frozenset[str]:
        """Return what no message may repeat, in the forms in which a server may say it."""
        found = {self.query, *(v for _, v in parse_qsl(self.query) if len(v) >= _LEAST)}
        if self.auth is not None:
            user, password = self.auth
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            found |= {password, quote(password, safe=""), token}
        return frozenset(found - {""})


def parse_address(url: str) -> Address:
    """Read an address that a user gave, with or without ``/v1`` at its end.

    Raises:
        ConfigError: It is no http address; the message holds no secret.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port is None or parts.port else None
    except (ValueError, AttributeError, TypeError):
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError(
            f"'{without_secrets(str(url))}' is no address of a server: it must be like "
            "http://localhost:8000/v1 (in a user or password write @, /, ? and # as %40, %2F, "
            "%3F and %23)"
        )
    auth = None
    if parts.username is not None:
        auth = unquote(parts.username), unquote(parts.password or "")
    return Address(without_secrets(url).rstrip("/").removesuffix("/v1"), auth, parts.query)


def without_secrets(url: str) -> str:
    """Return an address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # a password with a slash in it reads as a port that is no number
    except ValueError:
        parts = urlsplit("")
    if parts.netloc:
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    # Whatever this is, all in front of the last @ may be a password.
    scheme, mark, rest = url.rpartition("://")
    rest = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme if scheme.isalnum() else ''}{mark}{rest}"


def masked(text: str, secrets: frozenset[str]) -> str:
    """Return a text with every secret in it replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
