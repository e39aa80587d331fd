from typing import NamedTuple

from torch import Tensor

_current_level: int

class UnpackedDualTensor(NamedTuple):
    primal: Tensor
    tangent: Tensor | None

def unpack_dual(tensor: Tensor) -> UnpackedDualTensor: ...
