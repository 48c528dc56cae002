"""What an engine starts does not outlive the process that started it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

psutil = pytest.importorskip(
    "psutil", reason="psutil is not installed (it comes with treerl[vllm])"
)

# /bin/sleep under the name of one of vLLM's processes, and one that was there before.
STARTER = """
import subprocess, sys, time
from treerl.engines.orphans import OrphanGuard

def sleeper(name):
    return subprocess.Popen([name, "600"], executable="/bin/sleep")

older = sleeper("VLLM::Older")
time.sleep(0.2)
guard = OrphanGuard()
ours, other = sleeper("VLLM::EngineCore"), sleeper("sleep")
time.sleep(0.2)
guard.look()
print(older.pid, ours.pid, other.pid, flush=True)
if sys.argv[1] == "closes":
    guard.close()
time.sleep(600)
"""


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("end", ["closes", "is killed"])
def test_new_engine_processes_and_no_others_end_with_their_starter(end: str) -> None:
    command = [sys.executable, "-c", STARTER, end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        older, ours, other = map(int, starter.stdout.readline().split())
        try:
            if end == "is killed":
                assert runs(ours)
                starter.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 60
            while runs(ours):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert runs(older)
            assert runs(other)
        finally:
            starter.kill()
            for pid in (older, other):
                psutil.Process(pid).kill()
