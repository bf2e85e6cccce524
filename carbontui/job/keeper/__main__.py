"""Starts the keeper: `python -m carbontui.job.keeper`."""

from carbontui.job.keeper.process import main

if __name__ == "__main__":
    main()
