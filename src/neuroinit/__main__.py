"""``python -m neuroinit`` is the ``neuroinit`` command."""

import sys

from neuroinit.cli import main

if __name__ == "__main__":
    sys.exit(main())
