"""A job as the screen opens it, with what its report adds to the picture of a finished one."""

from __future__ import annotations

from dataclasses import replace

from carbontui import __version__
from carbontui.job import store
from carbontui.tui.target import Form, Target


def target_of(job: store.Job) -> Target:
    """The reports are loaded once they are asked for."""

    def receipt(form: Form) -> str:
        from carbontui.reports import card, story

        try:
            told = story.build(job, status=job.status(), version=__version__)
        except story.NoStory as error:
            raise RuntimeError(str(error)) from None
        return {"text": card.terminal, "markdown": card.markdown, "svg": card.svg}[form](told)

    def ending() -> tuple[tuple[str, str], ...]:
        from carbontui.reports import card, story

        try:
            return card.ending(story.build(job, status=job.status(), version=__version__))
        except story.NoStory:
            return ()

    return replace(Target.of(job), receipt=receipt, ending=ending)
