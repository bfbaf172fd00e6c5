"""Training mixtures of a rated corpus in which every language keeps its share.

`plan` says what is wanted; `reading` reads rated records, `index` keeps what is needed of them on
disk; `choose` says how often each record is taken, with `cut` (where to cut an order of records);
`writing` writes them shuffled, `manifest` says what they hold and counts it again; `mixture` does
all of it.
"""

from headscope.use.mixing.mixture import Manifest, Recount, mix, verify_manifest
from headscope.use.mixing.plan import MixPlan

__all__ = ["Manifest", "MixPlan", "Recount", "mix", "verify_manifest"]
