"""Training mixtures of a rated corpus in which every language keeps its share.

`plan` says what is wanted; `reading` reads rated records, `index` keeps what is needed of them on
disk; `choose` says how often each record is taken, by where an order of records is cut; `writing`
writes them shuffled; `mixture` does all of it, and its manifest says what the files hold
and counts it again.
"""

from headscope.use.mixing.mixture import Manifest, Recount, mix, verify_manifest
from headscope.use.mixing.plan import MixPlan

__all__ = ["Manifest", "MixPlan", "Recount", "mix", "verify_manifest"]
