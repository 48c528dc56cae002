"""The worker pool: deadlines, kills, recycling, threads, forks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treerl.verifiers import WorkerPool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(size=2, wall_s=20.0) as made:
        yield made


def test_nothing_starts_before_the_first_call() -> None:
    assert WorkerPool().workers == 0


def test_echo_and_reuse(pool: WorkerPool) -> None:
    before = pool.stats.started
    for i in range(3):
        assert pool.call("echo", {"n": i}).result == {"n": i}
    assert pool.stats.started - before <= 1


def test_a_hang_is_killed_and_the_pool_is_whole(pool: WorkerPool) -> None:
    began = time.monotonic()
    reply = pool.call("spin", {"seconds": 60}, wall_s=0.3)
    assert reply.status == "timeout"
    assert time.monotonic() - began < 3
    assert pool.call("echo", {"ok": 1}).status == "ok"


def test_errors_are_replies(pool: WorkerPool) -> None:
    reply = pool.call("no such task", {})
    assert reply.status == "error"
    assert "KeyError" in reply.detail
    assert pool.call("echo", {}).status == "ok"


def test_recycling() -> None:
    with WorkerPool(size=1, wall_s=20.0, max_calls=2) as pool:
        for _ in range(5):
            assert pool.call("echo", {}).status == "ok"
        assert pool.stats.started == 3
        assert pool.stats.recycled == 2


def test_memory_is_bounded() -> None:
    with WorkerPool(size=1, wall_s=20.0, memory_mb=256) as pool:
        assert pool.call("grow", {"mb": 64}).status == "ok"
        assert pool.call("grow", {"mb": 2000}).status == "memory"
        assert pool.call("echo", {}).status == "ok"


def test_a_busy_worker_dies_with_its_caller() -> None:
    code = (
        "import threading, time\n"
        "from treerl.verifiers import WorkerPool\n"
        "p = WorkerPool(size=1, wall_s=60)\n"
        "p.call('echo', {})\n"
        "print(p._idle[0].pid, flush=True)\n"
        "threading.Thread(target=p.call, args=('spin', {'seconds': 50}), daemon=True).start()\n"
        "time.sleep(0.5)\n"
        "import os; os._exit(0)\n"
    )
    done = run_python(code)
    process = Path(f"/proc/{int(done.stdout)}")
    for _ in range(50):
        if not process.exists():
            break
        time.sleep(0.1)
    assert not process.exists()


def run_python(code: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    root = Path(next(iter(__import__("treerl").__path__))).parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip


def test_threads_share_it(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda i: pool.call("echo", {"i": i}), range(24)))
    assert [r.result["i"] for r in replies] == list(range(24))
    assert pool.workers <= 2


def test_pickles_as_options(pool: WorkerPool) -> None:
    copy = pickle.loads(pickle.dumps(pool))
    assert (copy.size, copy.wall_s, copy.workers) == (2, 20.0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_gets_workers_of_its_own(pool: WorkerPool) -> None:
    assert pool.call("echo", {}).status == "ok"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            alive = pool.workers
            status = pool.call("echo", {}).status
            pool.close()
            os.write(write, f"{alive} {status}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"0 ok"
    os.close(read)
    os.close(write)
    assert pool.call("echo", {"still": "mine"}).result == {"still": "mine"}


def test_works_from_any_directory_and_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "from treerl.verifiers import WorkerPool\n"
        "p = WorkerPool(size=1, wall_s=20)\n"
        "assert p.call('echo', {}).status == 'ok'\n"
        "print(p._idle[0].pid, p._template.process.pid)\n"
    )
    done = run_python(code, tmp_path)
    processes = [Path(f"/proc/{pid}") for pid in done.stdout.split()]
    for _ in range(50):
        if not any(process.exists() for process in processes):
            break
        time.sleep(0.1)
    assert not any(process.exists() for process in processes)


def test_import_loads_no_solver() -> None:
    code = (
        "import sys, treerl.verifiers as v\n"
        "v.AnswerVerifier, v.StepVerifier, v.WorkerPool\n"
        "with v.StepVerifier() as s: assert s.verify('2 + 2 = 5').verdict == 'REFUTED'\n"
        "print(sorted({'sympy', 'z3', 'torch'} & set(sys.modules)))"
    )
    done = run_python(code)
    assert done.stdout.strip() == "[]"
