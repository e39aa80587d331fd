from torch import Size, Tensor

class FunctionCtx:
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]
    # What the package keeps there.
    by: float
    options: dict[str, str]
    shapes: tuple[Size, Size]
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def save_for_forward(self, *tensors: Tensor | None) -> None: ...
