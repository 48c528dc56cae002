"""Posting JSON to a server: what its faults mean."""

from __future__ import annotations

from typing import Any

import httpx

from treerl.errors import EngineError

__all__ = ["Busy", "Unreachable", "complaint", "open_client", "post", "words_of"]

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


def open_client(
    key: str | None, timeout: float, transport: httpx.AsyncBaseTransport | None
) -> httpx.AsyncClient:
    """Return a client; ``timeout`` in seconds bounds one try. The key is in no repr and no log."""
    return httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        transport=transport,
    )


async def post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> Any:
    """Post JSON and return JSON.

    Raises:
        EngineError: With the server's words, retryable where another try may help.
    """
    try:
        answer = await client.post(url, json=body)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(f"{url} cannot be reached: {words_of(error)}", retryable=True) from error
    except httpx.TransportError as error:
        raise EngineError(f"{url} broke off: {words_of(error)}", retryable=True) from error
    if answer.status_code in _PASSING:
        after = answer.headers.get("retry-after", "")
        wait = float(after) if after.replace(".", "", 1).isdigit() else 0.0
        raise Busy(f"{url} answered {answer.status_code}: {complaint(answer)}", wait)
    if answer.status_code >= 400:
        raise EngineError(f"{url} answered {answer.status_code}: {complaint(answer)}")
    try:
        return answer.json()
    except ValueError as error:
        raise EngineError(f"{url} answered something that is not JSON") from error


def complaint(answer: httpx.Response) -> str:
    """Return the server's own words, in one line."""
    try:
        said = answer.json()
        said = said.get("error", said)
        said = said.get("message", said) if isinstance(said, dict) else said
    except (ValueError, AttributeError):
        said = answer.text
    return " ".join(str(said).split())[:300]


def words_of(error: BaseException) -> str:
    """Return an error's text, or its kind where it has none."""
    return str(error).strip() or type(error).__name__
