"""A lock on a folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from treerl.errors import StoreLocked

__all__ = ["FolderLock"]


class FolderLock:
    """An advisory lock that the kernel drops with the process, so a kill leaves no stale lock."""

    def __init__(self, path: Path) -> None:
        import fcntl

        self._path = path
        while True:
            self._file = path.open("a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise StoreLocked(
                    f"{path.parent} is being written by {holder}; wait for it to end, or choose "
                    "another folder"
                ) from error
            if self._still_there():
                break
            self._file.close()  # its last holder removed it between our open and our lock
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def _still_there(self) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Drop the lock."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
