"""What long work calls to say how far it is."""

from __future__ import annotations

from collections.abc import Callable

#: Called with a title, how much is done, and of how much.
Progress = Callable[[str, int, int], None]
#: Of work that knows no title: called with how much is done, and of how much.
Steps = Callable[[int, int], None]
