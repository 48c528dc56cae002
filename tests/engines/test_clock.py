"""The virtual clock: order is exact and no real time passes."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.engines import VirtualClock


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_sleepers_wake_by_due_time_then_by_order_of_asking(delays: list[int]) -> None:
    clock, woken = VirtualClock(), []

    async def sleeper(index: int, delay: int) -> None:
        await clock.sleep(delay)
        woken.append((clock.now(), index))

    async def main() -> None:
        await asyncio.gather(*(sleeper(i, d) for i, d in enumerate(delays)))

    asyncio.run(main())
    assert woken == sorted((float(d), i) for i, d in enumerate(delays))


def test_the_clock_waits_until_the_loop_has_nothing_else_to_do() -> None:
    clock, seen = VirtualClock(), []

    async def busy() -> None:
        for _ in range(500):
            await asyncio.sleep(0)
        seen.append(("busy", clock.now()))

    async def sleeper() -> None:
        await clock.sleep(1)
        seen.append(("sleeper", clock.now()))

    async def main() -> None:
        await asyncio.gather(sleeper(), busy())

    asyncio.run(main())
    assert seen == [("busy", 0.0), ("sleeper", 1.0)]


def test_a_year_passes_at_once_and_nested_sleeps_keep_their_order() -> None:
    clock, seen = VirtualClock(), []

    async def chain(name: str, step: float) -> None:
        for _ in range(3):
            await clock.sleep(step)
            seen.append((clock.now(), name))

    async def main() -> None:
        await asyncio.gather(chain("slow", 1e7), chain("fast", 6e6))

    begin = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begin < 60
    assert [name for _, name in seen] == ["fast", "slow", "fast", "fast", "slow", "slow"]


def test_cancelled_sleepers_are_passed_over_and_loops_may_come_and_go() -> None:
    clock = VirtualClock()

    async def main() -> None:
        task = asyncio.ensure_future(clock.sleep(5))
        await asyncio.sleep(0)
        task.cancel()
        await clock.sleep(7)

    asyncio.run(main())
    asyncio.run(main())
    assert clock.now() == 14


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_time_does_not_run_backwards(seconds: float) -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError):
        asyncio.run(clock.sleep(seconds))
    with pytest.raises(ValueError):
        clock.advance(seconds)
