"""When a tick comes: with what the boards tell where that is near, at once where something changed."""

import asyncio

from carbontui.job.supervisor.shell.ticks import Ticks


def test_a_tick_comes_with_the_boards_report_at_most_a_tenth_early():
    now = [1000.0]

    async def came_of(what, after_s):
        waiting = asyncio.ensure_future(tick.wait())
        await asyncio.sleep(0)
        now[0] += after_s
        what()
        for _ in range(3):
            await asyncio.sleep(0)
        return waiting.done() or not waiting.cancel()

    async def scenario():
        assert not await came_of(tick.boards_read, 89.0)
        assert await came_of(tick.boards_read, 1.0)
        assert not await came_of(tick.boards_read, 1.0)  # a period is counted from the last one
        assert await came_of(tick.hurry, 0.0)

    tick = Ticks(100.0, lambda: now[0])
    asyncio.run(scenario())


def test_a_tick_comes_by_itself_where_no_board_tells_anything():
    async def scenario():
        await asyncio.wait_for(Ticks(0.01).wait(), 10)

    asyncio.run(scenario())
