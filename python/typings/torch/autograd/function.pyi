from torch import Size, Tensor

class FunctionCtx:
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]
    # What the package keeps there.
    alpha: float
    beta: float
    by: float
    function: str
    options: dict[str, str]
    shape_of_read: Size | None
    shapes: tuple[Size, Size]
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def save_for_forward(self, *tensors: Tensor | None) -> None: ...
