"""Any heads of the model: does it matter which ones are selected?"""

from headscope.evidence.controls.drawing import drawing
from headscope.evidence.rows import Control

RANDOM = Control(
    "random heads", "the selected heads are any so many heads of the model", drawing("random")
)
