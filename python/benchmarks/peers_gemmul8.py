"""GEMMul8 (https://github.com/RIKEN-RCCS/GEMMul8) from Python: compiled from its own source by nvcc, called on torch's stream.

    python peers_gemmul8.py SOURCE libgemmul8_for_peers.so [--nvcc NVCC] [--arch 90]

SOURCE is a checkout. The library can be made where there is no GPU, and taken to one. `peers.py` does this by itself, if nvcc is there.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# What GEMMul8's own unit includes comes before this: `gemmul8::gemm<float, INT8>` calls what is called here, and the unit, which has
# also complex numbers, float64 and FP8, takes many minutes to compile. ctypes needs an interface of C.
_BINDING = r"""
extern "C" void *peers_handle() {
    cublasHandle_t handle = nullptr;
    return cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS ? handle : nullptr;
}
extern "C" size_t peers_workspace(size_t m, size_t n, size_t k, unsigned moduli) {
    return real::workSize<gemmul8::Backend::INT8>(m, n, k, moduli, false, false, nullptr, nullptr);
}
// C = A·B of matrices by rows: by columns, that is Cᵀ = Bᵀ·Aᵀ.
extern "C" int peers_multiply(void *handle, void *stream, size_t m, size_t n, size_t k, const float *a, const float *b, float *c,
                              unsigned moduli, int fast, void *work) {
    const float one = 1.0f, zero = 0.0f;
    if (cublasSetStream((cublasHandle_t)handle, (cudaStream_t)stream) != CUBLAS_STATUS_SUCCESS) return -1;
    real::gemm<float, gemmul8::Backend::INT8>(Handle_t(CublasTag{}, (cublasHandle_t)handle), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b, n,
                                              a, k, &zero, c, n, moduli, fast != 0, work, nullptr, nullptr, false, false, false, false,
                                              (cudaStream_t)stream);
    return (int)cudaGetLastError();
}
"""
_END_OF_INCLUDES = "#if !defined(GEMM_ARGS)"


def build(source: Path, library: Path, nvcc: str = "nvcc", arch: str = "90") -> None:
    """Compiles the library with the flags of GEMMul8's Makefile, in less than a minute."""
    folder = source / "GEMMul8" if (source / "GEMMul8" / "src").is_dir() else source
    unit = folder / "src" / "gemmul8.cu"
    if not unit.is_file():
        raise SystemExit(f"{source} is no checkout of GEMMul8: there is no {unit}")
    text = unit.read_text(encoding="utf-8")
    if _END_OF_INCLUDES not in text:
        raise SystemExit(f"{unit} is not arranged as that of version 71296f9: there is no line {_END_OF_INCLUDES}")
    with tempfile.TemporaryDirectory() as temporary:
        binding = Path(temporary) / "binding.cu"
        binding.write_text(text[: text.index(_END_OF_INCLUDES)] + _BINDING, encoding="utf-8")
        command = [nvcc, "-std=c++20", "-O3", "-diag-suppress", "177", "-Xcompiler", "-fPIC", "-shared", f"-I{unit.parent}"]
        # No cuBLAS is linked: torch has loaded one, which is found by its name.
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}", str(binding), "-o", str(library)]
        subprocess.run(command, check=True)


class GemMul8:
    """The library, and a workspace that grows."""

    def __init__(self, library: Path, torch: Any) -> None:
        self._torch = torch
        # torch's cuBLAS first, with names that the library can see.
        for name in ("libcublasLt.so.13", "libcublas.so.13"):
            try:
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise SystemExit(f"{name} cannot be loaded ({error}): GEMMul8 calls it") from error
        self._library = ctypes.CDLL(str(library.resolve()))
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._library.peers_handle.restype = pointer
        self._library.peers_workspace.restype = size
        self._library.peers_workspace.argtypes = [size, size, size, ctypes.c_uint]
        self._library.peers_multiply.argtypes = [pointer, pointer, size, size, size, pointer, pointer, pointer, ctypes.c_uint, ctypes.c_int, pointer]
        self._handle = self._library.peers_handle()
        if not self._handle:
            raise SystemExit("cuBLAS gave GEMMul8 no handle")
        self._workspace: Any = None

    def multiply(self, a: Any, b: Any, moduli: int, fast: bool) -> Any:
        """The product of two matrices of float32 by rows, without gaps."""
        (m, k), n = a.shape, b.shape[1]
        if not a.is_contiguous() or not b.is_contiguous():
            raise SystemExit("GEMMul8 is called here for matrices by rows without gaps")
        needed = self._library.peers_workspace(m, n, k, moduli)
        if self._workspace is None or self._workspace.numel() < needed:
            self._workspace = None
            self._workspace = self._torch.empty(needed, dtype=self._torch.uint8, device=a.device)
        c = self._torch.empty(m, n, device=a.device)
        stream = self._torch.cuda.current_stream().cuda_stream
        code = self._library.peers_multiply(
            self._handle, stream, m, n, k, a.data_ptr(), b.data_ptr(), c.data_ptr(), moduli, int(fast), self._workspace.data_ptr()
        )
        if code != 0:
            raise SystemExit(f"GEMMul8 failed for {m}x{n}x{k}, {moduli} moduli: CUDA error {code}")
        return c


def main() -> None:
    parser = argparse.ArgumentParser(description="compiles GEMMul8 for peers.py")
    parser.add_argument("source", type=Path, help="a checkout of GEMMul8")
    parser.add_argument("library", type=Path, help="what to write")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--arch", default="90", help="the compute capability, without its point")
    arguments = parser.parse_args()
    build(arguments.source, arguments.library, arguments.nvcc, arguments.arch)


if __name__ == "__main__":
    main()
