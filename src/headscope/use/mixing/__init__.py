"""Training mixtures of a rated corpus in which every language keeps its share.

`plan` says what is wanted; `reading` reads rated records, `index` keeps what is needed of them on
disk; `choose` says how often each record is taken, with `cut` and `streaming` (where to cut an
order of records), `keys` (drawn orders) and `texts` (copies of a text); `writing` writes them
shuffled, `manifest` says what they hold and `proof` counts it again, `summary` is for the page;
`mixture` does all of it.
"""

from headscope.use.mixing.manifest import Manifest
from headscope.use.mixing.mixture import mix
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.proof import Recount, verify_manifest

__all__ = ["Manifest", "MixPlan", "Recount", "mix", "verify_manifest"]
