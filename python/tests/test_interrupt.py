"""Ctrl-C while the CPU executor computes.

The program runs in a process of its own, which gets the signal, and has a time limit.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

#: Seconds that the program has. The whole product would take longer.
TIME_LIMIT = 60


def test_ctrl_c_ends_a_product_on_the_executor() -> None:
    program = """
        import os, signal, threading, time
        import numpy as np
        import tilewright

        a, b = np.ones((8000, 64), np.float32), np.ones((64, 8000), np.float32)
        tilewright.matmul(a[:1], b[:, :1], on_cpu="emulate")
        sent = []

        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(1.0, interrupt).start()
        try:
            tilewright.matmul(a, b, on_cpu="emulate")
        except KeyboardInterrupt:
            waited = time.monotonic() - sent[0]
            assert waited < 2, waited
            # The executor goes on with what comes next.
            product = tilewright.matmul(a[:2], b[:, :3], on_cpu="emulate")
            assert (np.from_dlpack(product) == 64).all()
            print("interrupted")
        else:
            print("too fast, or not interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    assert result.stdout.strip() == "interrupted", result.stdout + result.stderr
