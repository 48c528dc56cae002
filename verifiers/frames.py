"""Length-prefixed JSON over two descriptors, with deadlines and without threads or signals."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

__all__ = ["HEADER", "MAX_FRAME", "Channel"]

MAX_FRAME = 1 << 24
HEADER = struct.Struct(">I")


def _wait(fd: int, event: int, deadline: float) -> bool:
    """Wait until ``fd`` is ready; False at the deadline. poll has no limit on descriptors."""
    left = deadline - time.monotonic()
    if left <= 0:
        return False
    poller = select.poll()
    poller.register(fd, event)
    return bool(poller.poll(max(1, int(left * 1000) + 1)))


class Channel:
    """One end of a pair of pipes (or of a socket, given twice)."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        os.set_blocking(write_fd, False)

    def send(self, message: dict[str, Any], deadline: float) -> bool:
        """Write one frame; False at the deadline or where the other end is gone."""
        data = json.dumps(message).encode()
        view = memoryview(HEADER.pack(len(data)) + data)
        while view:
            try:
                view = view[os.write(self.write_fd, view) :]
            except BlockingIOError:
                if not _wait(self.write_fd, select.POLLOUT, deadline):
                    return False
            except OSError:
                return False
        return True

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """Read one frame; None at the deadline or where the other end is gone."""
        header = self._read(HEADER.size, deadline)
        if header is None:
            return None
        (size,) = HEADER.unpack(header)
        if size > MAX_FRAME:
            return None
        body = self._read(size, deadline)
        if body is None:
            return None
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    def _read(self, size: int, deadline: float) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            if not _wait(self.read_fd, select.POLLIN, deadline):
                return None
            try:
                chunk = os.read(self.read_fd, min(size - len(data), 1 << 16))
            except OSError:
                return None
            if not chunk:
                return None
            data += chunk
        return bytes(data)
