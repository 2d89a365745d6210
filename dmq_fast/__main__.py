"""``python -m dmq_fast`` is ``dmq-fast``."""

import sys

from dmq_fast.cli import main

sys.exit(main())
