"""``python -m orthosparse``: the program, where its folder is not on the PATH."""

import sys

from orthosparse.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
