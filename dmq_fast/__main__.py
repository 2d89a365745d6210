"""``python -m dmq_fast`` is ``dmq-fast``."""

import sys

from dmq_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
