"""`python -m carbontui`: the command, where its script is not on the PATH."""

from carbontui.start import main

if __name__ == "__main__":
    main()
