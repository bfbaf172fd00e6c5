"""What a reproduction tells; names that moved to `reproduce`."""

from headscope.papers.reproduce import _table as _table
from headscope.papers.reproduce import describe as describe
from headscope.papers.reproduce import typeset as typeset
