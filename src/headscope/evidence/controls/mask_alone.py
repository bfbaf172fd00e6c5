"""The heads outside a mask removed: does it help to keep a part of their strength?"""

from headscope.evidence.rows import Control

MASK_ALONE = Control("the mask alone")
