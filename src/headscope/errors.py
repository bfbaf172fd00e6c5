"""The errors that headscope raises for input it cannot use."""

from __future__ import annotations

__all__ = ["InputError", "MissingExtra"]


class InputError(ValueError):
    """Input that cannot be used: a file, a flag, a model, an artifact.

    The message is one sentence that names the file, the line (from 1) where there is one, what is
    wrong and how to put it right. The command line prints it and exits with `exit_code`.
    """

    exit_code = 2


class MissingExtra(InputError):
    """A package that only one part of headscope needs is not installed.

    The message carries the line that installs it.
    """

    @classmethod
    def needed(cls, purpose: str, package: str, extra: str) -> MissingExtra:
        """The error for `purpose`, which needs `package`, installed by the extra named `extra`."""
        return cls(
            f"{purpose} needs the package {package}, which is not installed; "
            f"install it with: pip install 'headscope[{extra}]'"
        )
