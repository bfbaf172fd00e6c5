"""A policy of simultaneous translation: what the last drafts have in common is written."""

from headscope.evidence.rows import Control

LOCAL_AGREEMENT = Control("local agreement")
