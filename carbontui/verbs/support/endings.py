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

    return replace(without_reports(job), receipt=receipt, ending=ending)


def without_reports(job: store.Job) -> Target:
    """The job with what its files say, which are its only source once it is over."""
    told = Target(job.id, job.name, job.socket, job.status(), job.read_log, job.started_s, job.owner)
    return replace(told, whole_run=job.whole_run, last_look=job.dir / "last-look.json")
