"""Starts the supervisor by the name that keepers of any version use: `python -m carbontui.job.supervisor`."""

from carbontui.job.supervisor.loop import main

if __name__ == "__main__":
    main()
