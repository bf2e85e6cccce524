"""Looking for a word, and for the first error, in output far longer than what is read at a time."""

from __future__ import annotations

from typing import Any

from carbontui.job.keeper.resume import TRY_OVER
from carbontui.tui.model.loglines import text_of
from carbontui.tui.screens.log import LogPage, LogScreen

LINES = [f"line {n} of a log with words" for n in range(12_000)]
LINES[40] = "Traceback (most recent call last):"
LINES[41] = "RuntimeError: first"
LINES[5000] = "the Needle in the middle"
LINES[11_900] = "another needle near the end"
LINES[11_950] = "error: late"


def pointed(s: Any) -> str:
    page = s.app.screen.query_one(LogPage)
    return "" if page.match is None or page.match >= len(page.rows) else text_of(page.rows[page.match])


async def test_a_word_is_found_back_and_forth_through_the_whole_file(stage: Any) -> None:
    async with stage() as s:
        s.fake.log = "".join(f"{line}\n" for line in LINES).encode()
        await s.pilot.press("l")
        await s.until(lambda: isinstance(s.app.screen, LogScreen) and "line 11999" in s.text())
        await s.pilot.press("slash", *"needle", "enter")
        await s.until(lambda: pointed(s) == LINES[11_900])
        assert LINES[11_900] in s.text()
        await s.pilot.press("N")
        await s.until(lambda: pointed(s) == LINES[5000])
        await s.pilot.press("N")
        await s.until(lambda: "not found in the output" in s.text())
        await s.pilot.press("n")
        await s.until(lambda: pointed(s) == LINES[11_900])
        await s.pilot.press("exclamation_mark")
        await s.until(lambda: pointed(s) == LINES[40])
        assert "RuntimeError: first" in s.text()
        await s.pilot.press("G")
        await s.until(lambda: "line 11999" in s.text())


async def test_the_interrupt_of_a_try_is_not_the_first_error(stage: Any) -> None:
    async with stage() as s:
        tried = [*LINES[40:42], f"carbontui: {TRY_OVER}", "step 1", "ValueError: real error", "step 2"]
        s.fake.log = "".join(f"{line}\n" for line in tried).encode()
        await s.pilot.press("l")
        await s.until(lambda: isinstance(s.app.screen, LogScreen) and "step 2" in s.text())
        await s.pilot.press("exclamation_mark")
        await s.until(lambda: pointed(s) == "ValueError: real error")


async def test_what_is_not_there_is_said_and_a_letter_of_the_question_is_no_key(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("l")
        await s.until(lambda: isinstance(s.app.screen, LogScreen) and "following" in s.text())
        await s.pilot.press("slash", *"quite", "enter")
        await s.until(lambda: "'quite' is not before" in s.text())
        assert isinstance(s.app.screen, LogScreen)
