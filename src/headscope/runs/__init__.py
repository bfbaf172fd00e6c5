"""Run folders: configuration and its hash, provenance, partial and final results.

A run is keyed by what it computes: the command, every field of its configuration, the content of
its inputs and the version of headscope. Its completion marker is written last.
"""

from headscope.runs.codec import Record, Result, decode, encode, entry
from headscope.runs.folder import (
    Elsewhere,
    Group,
    Kept,
    Run,
    Share,
    begins,
    open_run,
    sharing,
    whole,
    working_in,
)
from headscope.runs.kept import KeptNumbers, digest
from headscope.runs.plain import dump_json, file_digest, folder_digest, plain
from headscope.runs.protocol import carry_out, carry_out_again
from headscope.runs.signature import Signature, collect_provenance, configuration

__all__ = [
    "Elsewhere",
    "Group",
    "Kept",
    "KeptNumbers",
    "Record",
    "Result",
    "Run",
    "Share",
    "Signature",
    "begins",
    "carry_out",
    "carry_out_again",
    "collect_provenance",
    "configuration",
    "decode",
    "digest",
    "dump_json",
    "encode",
    "entry",
    "file_digest",
    "folder_digest",
    "open_run",
    "plain",
    "sharing",
    "whole",
    "working_in",
]
