"""Linear layers and 1 x 1 convolutions that hold only their active weights, as blocks or as single entries."""

from orthosparse.modules.block import BlockConv1x1, BlockLinear
from orthosparse.modules.compact_module import Compact
from orthosparse.modules.sparse import SparseConv1x1, SparseLinear

__all__ = ["BlockConv1x1", "BlockLinear", "Compact", "SparseConv1x1", "SparseLinear"]
