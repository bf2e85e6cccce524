"""Starts the worker under the name that supervisors of every version use: `python -m carbontui.job.worker`."""

from carbontui.job.worker.process import main

if __name__ == "__main__":
    main()
