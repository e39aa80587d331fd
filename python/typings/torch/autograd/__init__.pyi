from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad as forward_ad
from torch.autograd import function as function

class Function:
    @classmethod
    def apply(cls, *arguments: Tensor | float | str | dict[str, Any] | Callable[..., Any] | None) -> Tensor: ...
