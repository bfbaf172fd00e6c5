"""Reproduces the small paper on the bundled model. Arguments: run folder, step to die in or -."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import MappingProxyType

from headscope.papers import registry
from headscope.papers.reproduce import Reproduce, reproduce


def main() -> None:
    out, step = sys.argv[1:]
    os.environ["DIE_IN"] = step
    vars(registry)["PAPERS"] = MappingProxyType({"small": "small_paper"})
    reproduce(Reproduce("small", only=("table-1",)), Path(out))


if __name__ == "__main__":
    main()
