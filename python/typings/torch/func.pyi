from collections.abc import Mapping

from torch import Tensor
from torch.nn import Module

def functional_call(module: Module, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor: ...
