"""Starts the worker by the name that supervisors of any version use: `python -m carbontui.job.worker`."""

from carbontui.job.worker.process import main

if __name__ == "__main__":
    main()
