"""Packages that only some inputs need, imported when they are needed."""

from headscope.errors import need as need
