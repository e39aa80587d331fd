"""`linear`, `addmm` and `baddbmm` of torch tensors, on the CPU executor: against torch, with everything that torch does besides."""

from __future__ import annotations

from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

import torch.nn.functional as F  # noqa: E402

EMULATE: Any = {"on_cpu": "emulate"}

#: Each activation, and what torch has for it.
ACTIVATIONS: list[tuple[Any, Any]] = [
    ("relu", torch.relu),
    (("leaky_relu", 0.25), lambda x: F.leaky_relu(x, 0.25)),
    ("sigmoid", torch.sigmoid),
    ("silu", F.silu),
    ("tanh", torch.tanh),
    ("gelu", F.gelu),
    (("gelu", "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    ("mish", F.mish),
    (("hardtanh", -0.5, 1.5), lambda x: F.hardtanh(x, -0.5, 1.5)),
    (("clamp", None, 0.5), lambda x: torch.clamp(x, max=0.5)),
    (("mul", -1.5), lambda x: x * -1.5),
    (("add", 0.5, 3.0), lambda x: x + 1.5),
    (["silu", "tanh", ("mul", 2.0), "gelu"], lambda x: F.gelu(2.0 * torch.tanh(F.silu(x)))),
    ([], lambda x: x),
]
every_activation = pytest.mark.parametrize(("activation", "by_torch"), ACTIVATIONS, ids=lambda value: str(value)[:40])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(20261126)
    torch.compiler.reset()


def whole(*shape: int, requires_grad: bool = False) -> Any:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-4, 5, shape).float().requires_grad_(requires_grad)


def double(tensors: Any) -> list[Any]:
    return [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in tensors]


def operands(shape_x: Any = (6, 5), shape_w: Any = (7, 5), requires_grad: bool = True) -> list[Any]:
    """x, w, a bias and a residual, of which products are of the size of one."""
    shape = (*shape_x[:-1], *shape_w[:-1])
    shapes = (shape_x, shape_w, shape_w[:-1], shape)
    return [(torch.randn(shape) / 2).requires_grad_(requires_grad) for shape in shapes]


def ours(x: Any, w: Any, bias: Any, residual: Any, activation: Any = None, scale: float = 0.75) -> Any:
    return tilewright.linear(x, w, bias, activation, residual, scale, precision="fp32-strict", **EMULATE)


def theirs(x: Any, w: Any, bias: Any, residual: Any, by_torch: Any = lambda x: x, scale: float = 0.75) -> Any:
    return by_torch(scale * F.linear(x, w) + bias) + residual


@every_activation
def test_results_and_derivatives_are_those_of_torch_in_float64(activation: Any, by_torch: Any) -> None:
    given = operands()
    exact = double(given)
    weights = torch.randn(6, 7)
    expected = theirs(*exact, by_torch)
    derivatives = torch.autograd.grad((expected * weights.double()).sum(), exact)
    # What is at the end of a slope in one and not in the other would have another derivative: here there is nothing as near.
    with torch.no_grad():
        torch.testing.assert_close(ours(*given, activation).double(), expected, rtol=2e-6, atol=2e-6)
    found = ours(*given, activation)
    torch.testing.assert_close(found.double(), expected.detach(), rtol=2e-6, atol=2e-6)
    for ours_, theirs_ in zip(torch.autograd.grad((found * weights).sum(), given), derivatives):
        assert ours_.dtype == torch.float32
        torch.testing.assert_close(ours_.double(), theirs_, rtol=1e-5, atol=1e-5)


def test_a_wrong_derivative_would_be_noticed() -> None:
    given = operands()
    (of_w,) = torch.autograd.grad(ours(*given, "gelu").sum(), [given[1]])
    (other,) = torch.autograd.grad(ours(*given, ("gelu", "tanh")).sum(), [given[1]])
    with pytest.raises(AssertionError):
        torch.testing.assert_close(of_w, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape_x", "shape_w"), [((5,), (7, 5)), ((5,), (5,)), ((6, 5), (5,)), ((2, 3, 5), (7, 5)), ((0, 5), (7, 5)), ((6, 0), (7, 0))]
)
@pytest.mark.parametrize("wanted", [(1, 1, 1, 1), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_only_derivatives_that_are_wanted_are_there(shape_x: Any, shape_w: Any, wanted: Any) -> None:
    def derivatives(function: Any) -> Any:
        torch.manual_seed(2)
        given = operands(shape_x, shape_w, requires_grad=False)
        for tensor, is_wanted in zip(given, wanted):
            tensor.requires_grad_(bool(is_wanted))
        function(*given).sum().backward()
        return [tensor.grad for tensor in given]

    torch.testing.assert_close(derivatives(ours), derivatives(theirs))


def test_derivatives_of_broadcast_tensors_are_sums() -> None:
    def derivatives(function: Any) -> Any:
        torch.manual_seed(3)
        given = [torch.randn(shape, requires_grad=True) for shape in ((2, 3, 5), (7, 5), (3, 1), (1,))]
        factor = torch.randn(7, requires_grad=True)
        function(*given, factor).square().sum().backward()
        return [tensor.grad for tensor in (*given, factor)]

    found = derivatives(lambda x, w, bias, residual, factor: ours(x, w, bias, residual, ["tanh", ("mul", factor)]))
    expected = derivatives(lambda x, w, bias, residual, factor: theirs(x, w, bias, residual, lambda x: torch.tanh(x) * factor))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*double precision.*")
def test_derivatives_are_what_differences_approach() -> None:
    given = operands()
    # It is linear in each, so that large steps are fine, as they have to be in single precision.
    assert torch.autograd.gradcheck(ours, tuple(given), eps=0.5, atol=1e-3, rtol=1e-3)
    # With an activation, the differences are not exact: steps between what rounding and what curvature spoils.
    curved = lambda *tensors: ours(*tensors, "gelu")  # noqa: E731
    assert torch.autograd.gradcheck(curved, tuple(given), eps=1e-2, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("function", ["addmm", "baddbmm"])
def test_addmm_and_baddbmm_are_those_of_torch(function: str) -> None:
    batch = (3,) if function == "baddbmm" else ()
    for shape in ((*batch, 6, 7), (7,), (6, 1), ()):

        def results(of: Any, **options: Any) -> Any:
            torch.manual_seed(4)
            shapes = (shape, (*batch, 6, 5), (*batch, 5, 7))  # noqa: B023
            tensors = [torch.randn(extents, requires_grad=True) for extents in shapes]
            result = of(*tensors, beta=0.5, alpha=-1.5, **options)
            return [result, *torch.autograd.grad(result.square().sum(), tensors)]

        found = results(getattr(tilewright, function), activation="relu", **EMULATE)
        by_torch = getattr(torch, function)
        expected = results(lambda *tensors, **factors: torch.relu(by_torch(*tensors, **factors)))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    # Zero times something: a derivative of zero, and nothing is read.
    input, mat1, mat2 = torch.full((7,), torch.nan, requires_grad=True), torch.randn(*batch, 6, 5), torch.randn(*batch, 5, 7)
    result = getattr(tilewright, function)(input, mat1, mat2, beta=0, **EMULATE)
    torch.testing.assert_close(result.detach(), mat1 @ mat2)
    result.sum().backward()
    assert (input.grad == 0).all()


def test_second_derivatives_are_those_of_torch() -> None:
    def derivatives(function: Any, activation: Any) -> Any:
        torch.manual_seed(5)
        given = operands()
        first = torch.autograd.grad(function(*given, activation).square().sum(), given[:2], create_graph=True)
        return torch.autograd.grad(sum(of.square().sum() for of in first), given)

    torch.testing.assert_close(derivatives(ours, "tanh"), derivatives(theirs, torch.tanh), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_derivatives_forwards_and_transformations_are_those_of_torch() -> None:
    given, tangents = operands(requires_grad=False), operands(requires_grad=False)
    many = [torch.stack([tensor, -tensor, 2 * tensor]) for tensor in given]

    def results(function: Any) -> Any:
        from torch.autograd import forward_ad
        from torch.func import grad, jacrev, jvp, vmap

        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(function(forward_ad.make_dual(given[0], tangents[0]), *given[1:]))
        loss = lambda *tensors: function(*tensors).square().sum()  # noqa: E731
        return [
            *dual,
            *jvp(function, tuple(given), tuple(tangents)),
            *grad(loss, argnums=(0, 1, 2, 3))(*given),
            jacrev(function, argnums=1)(*given),
            vmap(function)(*many),
            vmap(function, in_dims=(0, None, None, None))(many[0], *given[1:]),
            vmap(function, in_dims=(None, 0, None, 0))(given[0], many[1], given[2], many[3]),
            vmap(grad(loss))(*many),
        ]

    found = results(lambda *tensors: ours(*tensors, ["silu", ("mul", 2.0)]))
    torch.testing.assert_close(found, results(lambda *tensors: theirs(*tensors, lambda x: 2.0 * F.silu(x))), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_no_derivative_is_lost_silently() -> None:
    from torch.autograd import forward_ad

    x, w = whole(2, 3), whole(4, 3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(ValueError, match="forward-mode"):
            torch.ops.tilewright.fused_matmul("linear", dual, w, [], on_cpu="emulate")
        with pytest.raises(ValueError, match="forward-mode"):
            tilewright.linear(dual, w, out=torch.empty(2, 4), **EMULATE)
    for given in ([x.clone().requires_grad_(), w], [x, w, torch.zeros(4, requires_grad=True)]):
        with pytest.raises(RuntimeError, match="no_grad"):
            tilewright.linear(*given, out=torch.empty(2, 4), **EMULATE)
        with torch.no_grad():
            tilewright.linear(*given, out=torch.empty(2, 4), **EMULATE)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_it_compiles_without_a_break(backend: str, dynamic: bool, wanted: bool) -> None:
    given = operands(requires_grad=wanted)

    def layer(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        y = ours(x, w, bias, residual, ["gelu", ("add", bias, 0.5), ("leaky_relu", 0.1)])
        y = tilewright.addmm(bias, x, w.mT, alpha=0.5, beta=2, activation="silu", **EMULATE) + y
        return tilewright.baddbmm(bias, x.unsqueeze(0), w.mT.unsqueeze(0), **EMULATE).squeeze(0) * y

    def expected(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        y = theirs(x, w, bias, residual, lambda x: F.leaky_relu(F.gelu(x) + 0.5 * bias, 0.1))
        y = F.silu(torch.addmm(bias, x, w.mT, alpha=0.5, beta=2)) + y
        return torch.baddbmm(bias, x.unsqueeze(0), w.mT.unsqueeze(0)).squeeze(0) * y

    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (6, 9):
        given[0] = torch.randn(rows, 5, requires_grad=wanted)
        given[3] = torch.randn(rows, 7, requires_grad=wanted)
        found, right = compiled(*given), expected(*given)
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
        if wanted:
            of_ours = torch.autograd.grad(found.sum(), given)
            torch.testing.assert_close(of_ours, torch.autograd.grad(right.sum(), given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True, None])
def test_numbers_can_be_arguments_of_what_is_compiled(dynamic: Any) -> None:
    def layer(x: Any, w: Any, bias: Any, alpha: float, slope: float) -> Any:
        return tilewright.addmm(bias, x, w, alpha=alpha, beta=2 * alpha, activation=("leaky_relu", slope), **EMULATE)

    x, w, bias = whole(4, 5), whole(5, 6), whole(6)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for alpha, slope in ((0.5, 0.25), (2.0, 0.25), (3, 0.5)):
        expected = F.leaky_relu(torch.addmm(bias, x, w, alpha=alpha, beta=2 * alpha), slope)
        torch.testing.assert_close(compiled(x, w, bias, alpha, slope), expected, rtol=0, atol=0)


def test_a_compiled_function_can_have_its_result_written() -> None:
    compiled = torch.compile(
        lambda x, w, out: tilewright.linear(x, w, activation="relu", out=out, **EMULATE) * 2, fullgraph=True, backend="aot_eager"
    )
    x, w, out = whole(2, 3), whole(4, 3), torch.zeros(2, 4)
    torch.testing.assert_close(compiled(x, w, out), 2 * torch.relu(x @ w.T))
    torch.testing.assert_close(out, torch.relu(x @ w.T))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("steps", ["", "add bias;gelu;multiply operand_of_mul"])
def test_torch_finds_the_operator_in_order(requires_grad: bool, steps: str) -> None:
    x, w, bias, _ = operands(requires_grad=requires_grad)
    read = [bias, bias] if steps else []
    options = EMULATE | {"alpha": 0.5, "steps": steps, "numbers": [0.5] if steps else []}
    torch.library.opcheck(torch.ops.tilewright.fused_matmul.default, ("linear", x, w, read), options)
    read = [tensor.detach() for tensor in read]
    out = torch.empty(6, 7)
    torch.library.opcheck(torch.ops.tilewright.fused_matmul.out, ("linear", x.detach(), w.detach(), read), options | {"out": out})


def test_tensors_without_memory_have_results_without_memory() -> None:
    x, w, bias = (torch.empty(*shape, device="meta") for shape in ((5, 2, 3), (4, 3), (4,)))
    y = tilewright.linear(x, w, bias, "gelu")
    assert y.device.type == "meta" and y.shape == (5, 2, 4)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert tilewright.linear(torch.empty(5, 3), torch.empty(3)).shape == (5,)


def message_of(kind: Any, function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        function(*arguments, **(EMULATE | options))
    return str(error.value)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_errors_are_those_of_other_arrays(device: str, requires_grad: bool) -> None:
    x, w, bias = (torch.zeros(shape, device=device) for shape in ((4, 5), (3, 5), (3,)))
    x.requires_grad_(requires_grad)
    of: Any = tilewright.linear
    text = message_of(ValueError, of, x, w.T)
    assert "x has shape (4, 5)" in text and "w has shape (5, 3)" in text
    assert "w has to be a matrix" in message_of(ValueError, of, x, w[None])
    assert "bias has shape (4,)" in message_of(ValueError, of, x, w, x.detach()[:, 0])
    assert "residual has shape (2, 4, 3)" in message_of(ValueError, of, x, w, residual=torch.zeros(2, 4, 3, device=device))
    assert "operand_of_add has shape (5,)" in message_of(ValueError, of, x, w, activation=["relu", ("add", w[0])])
    assert "bias has elements of type torch.float64" in message_of(TypeError, of, x, w, bias.double())
    assert "mat2" in message_of(ValueError, tilewright.addmm, bias, x, w.T[0])
    assert "batch1" in message_of(ValueError, tilewright.baddbmm, bias, x, w.T)
    assert "'swish'" in message_of(ValueError, of, x, w, activation="swish")
    assert "'bmm'" in message_of(ValueError, torch.ops.tilewright.fused_matmul, "bmm", x.to("meta"), w.to("meta"), [])
    other = torch.zeros(3, device="meta" if device == "cpu" else "cpu")
    text = message_of(ValueError, of, x, w, other)
    assert "cpu" in text and "meta" in text


def test_tensors_of_the_cpu_are_refused_unless_something_is_asked_for() -> None:
    x, w = whole(4, 5), whole(3, 5)
    assert "on_cpu" in message_of(ValueError, tilewright.linear, x, w, on_cpu="refuse")
    assert "numpy.ndarray" in message_of(TypeError, tilewright.linear, x, w, whole(3).numpy())


def test_subclasses_and_modes_see_the_operator() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, w, bias = whole(4, 5), whole(3, 5), whole(3)
    expected = torch.relu(F.linear(x, w, bias))
    with Mode():
        found = tilewright.linear(x, w, bias, "relu", **EMULATE)
    assert "tilewright.fused_matmul.default" in seen
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(tilewright.linear(x, w, bias, "relu", **EMULATE), expected, rtol=0, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(tilewright.linear(x, w, bias, "relu", **EMULATE), expected, rtol=0, atol=0)


def test_a_layer_of_torch_is_trained() -> None:
    """Two layers, an optimizer of torch's, and as many steps by torch alone."""

    def losses(of: Any) -> list[float]:
        torch.manual_seed(6)
        first, second = torch.nn.Linear(5, 16), torch.nn.Linear(16, 3)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        x, target = torch.randn(8, 5), torch.randn(8, 3)
        found: list[float] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = (of(of(x, first, "gelu"), second, None) - target).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    found = losses(lambda x, layer, activation: tilewright.linear(x, layer.weight, layer.bias, activation, **EMULATE))
    expected = losses(lambda x, layer, activation: F.gelu(layer(x)) if activation else layer(x))
    assert found == pytest.approx(expected, rel=1e-4) and found[-1] < found[0]
