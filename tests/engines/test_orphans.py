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
    print("closed", flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("closes", [False, True])
def test_a_kill_takes_the_new_engine_processes_along_and_no_others(closes: bool) -> None:
    command = [sys.executable, "-c", STARTER, "closes" if closes else "stays open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        older, ours, other = pids = list(map(int, starter.stdout.readline().split()))
        try:
            if closes:
                assert starter.stdout.readline() == "closed\n"
            assert runs(ours)
            starter.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 60
            while runs(ours) and not closes:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert [runs(older), runs(ours), runs(other)] == [True, closes, True]
        finally:
            starter.kill()
            for pid in filter(runs, pids):
                psutil.Process(pid).kill()
