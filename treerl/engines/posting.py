"""Posting JSON to a server: what its faults mean."""

from __future__ import annotations

import logging
import math
from typing import Any

import httpx

from treerl.engines.address import Address, masked
from treerl.errors import EngineError

__all__ = ["Busy", "Client", "Unreachable", "words_of"]

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which another try may succeed."""


class Unreachable(EngineError):
    """There is no connection."""


class Busy(EngineError):
    """The server asks to come again.

    Attributes:
        wait: Seconds after which, 0 if it did not say.
    """

    def __init__(self, message: str, wait: float) -> None:
        self.wait = wait
        super().__init__(message, retryable=True)


class Client:
    """Asks servers, and lets no message repeat the key, a password or a query.

    Args:
        addresses: Of the servers.
        key: The API key. A user and password in an address take its place there, since HTTP sends
            only one of them.
        timeout: Seconds that one try may take.
        transport: An httpx transport, for tests.
    """

    def __init__(
        self,
        addresses: list[Address],
        key: str | None,
        timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._secrets = frozenset({key} if key else ()).union(*(a.secrets() for a in addresses))
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
            transport=transport,
        )
        queries = frozenset(address.query for address in addresses) - {""}
        self._filter = _QueryFilter(queries)
        if queries:
            _httpx_log.addFilter(self._filter)

    async def post(self, address: Address, path: str, body: dict[str, Any]) -> Any:
        """Post JSON and return JSON.

        Raises:
            EngineError: With the server's words, retryable where another try may help.
        """
        answer = await self._send("POST", address, path, json=body)
        shown, status = address.base + path, answer.status_code
        if status in _PASSING:
            wait = _seconds(answer.headers.get("retry-after", ""))
            raise Busy(f"{shown} answered {status}: {self._complaint(answer)}", wait)
        self._refuse(shown, answer)
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise EngineError(f"{shown} answered something that is not JSON") from error

    async def look(self, address: Address, path: str) -> Any:
        """Get what a server says about itself; None where the answer is not JSON.

        Raises:
            EngineError: The server cannot be reached or has nothing there.
        """
        answer = await self._send("GET", address, path)
        self._refuse(path, answer)
        try:
            return answer.json()
        except (ValueError, RecursionError):
            return None

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        return masked(text, self._secrets)

    async def aclose(self) -> None:
        """Close the connections."""
        _httpx_log.removeFilter(self._filter)
        await self._client.aclose()

    async def _send(
        self, method: str, address: Address, path: str, **options: Any
    ) -> httpx.Response:
        if address.auth is not None:
            options["auth"] = address.auth
        shown = address.base + path
        try:
            return await self._client.request(method, address.url(path), **options)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            said = self.hide(words_of(error))
            raise Unreachable(f"{shown} cannot be reached: {said}", retryable=True) from error
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise EngineError(f"{shown} cannot be asked: {self.hide(words_of(error))}") from error
        except httpx.HTTPError as error:
            said = self.hide(words_of(error))
            raise EngineError(f"{shown} broke off: {said}", retryable=True) from error

    def _refuse(self, shown: str, answer: httpx.Response) -> None:
        status = answer.status_code
        if status >= 400:
            raise EngineError(f"{shown} answered {status}: {self._complaint(answer)}")
        if status >= 300:
            raise EngineError(f"{shown} answered {status}, which leads to another address")

    def _complaint(self, answer: httpx.Response) -> str:
        """Return the server's own words, in one line and without secrets."""
        try:
            said = answer.json()
            said = said.get("error", said)
            said = str(said.get("message", said) if isinstance(said, dict) else said)
        except (ValueError, AttributeError, RecursionError):
            said = answer.text
        # JSON can spell half a surrogate pair, which no file could hold.
        said = said.encode(errors="replace").decode()
        return " ".join(self.hide(said).split())[:300]


class _QueryFilter(logging.Filter):
    """Takes queries out of the addresses that httpx logs at the level INFO."""

    def __init__(self, queries: frozenset[str]) -> None:
        super().__init__()
        self._queries = queries

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, without our queries."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._shown(value) for value in record.args)
        return True

    def _shown(self, value: Any) -> Any:
        if isinstance(value, httpx.URL) and value.query.decode() in self._queries:
            return value.copy_with(query=None)
        return value


_httpx_log = logging.getLogger("httpx")


def _seconds(text: str) -> float:
    """Read a Retry-After; a date, and what is no number of seconds, is 0."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value > 0 and math.isfinite(value) else 0.0


def words_of(error: BaseException) -> str:
    """Return an error's text, or its kind where it has none."""
    return str(error).strip() or type(error).__name__
