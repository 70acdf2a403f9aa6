# SPDX-License-Identifier: Apache-2.0
"""`python -m slipring` and the command `slipring`: the launcher takes this process's place."""

import os
import sys
from typing import NoReturn

from ._report import LAUNCHER


def main() -> NoReturn:
    sys.stdout.flush()
    os.execv(LAUNCHER, [str(LAUNCHER), *sys.argv[1:]])


if __name__ == "__main__":
    main()
