"""Ctrl-C while the CPU executor computes.

The program runs in a process of its own, which gets the signal, and has a time limit.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

#: Seconds that the program has. The whole product would take longer.
TIME_LIMIT = 60


def said(program: str) -> str:
    """What a program says that has not failed."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


def test_ctrl_c_ends_a_product_on_the_executor() -> None:
    program = """
        import os, signal, threading, time
        import numpy as np
        import tilewright

        # Whoever is started in the background of a shell ignores the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
    assert said(program) == "interrupted"


def test_other_threads_go_on_while_one_waits_for_an_explanation() -> None:
    program = """
        import os, threading, time
        import numpy as np
        import tilewright

        large, small = np.ones((8000, 64), np.float32), np.ones((3, 4), np.float32)
        tilewright.matmul(small, small.T, on_cpu="emulate")
        # All threads of the executor are busy for longer than this takes.
        threading.Thread(target=lambda: tilewright.matmul(large, large.T, on_cpu="emulate"), daemon=True).start()
        time.sleep(0.5)
        longest, last = 0.0, time.monotonic()
        threading.Thread(target=lambda: tilewright.explain(small, small.T, on_cpu="emulate"), daemon=True).start()
        for _ in range(200):
            time.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        print("waited" if longest > 2 else "went on", flush=True)
        os._exit(0)
    """
    assert said(program) == "went on"


def test_a_small_product_waits_for_no_large_one_and_nor_does_ctrl_c() -> None:
    program = """
        import os, signal, threading, time
        import numpy as np
        import tilewright

        signal.signal(signal.SIGINT, signal.default_int_handler)
        large, small = np.ones((8000, 64), np.float32), np.ones((3, 4), np.float32)
        threading.Thread(target=lambda: tilewright.matmul(large, large.T, on_cpu="emulate"), daemon=True).start()
        time.sleep(0.5)
        begun = time.monotonic()
        assert (np.asarray(tilewright.matmul(small, small.T, on_cpu="emulate")) == 4).all()
        waited = time.monotonic() - begun
        sent = []

        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.5, interrupt).start()
        try:
            tilewright.matmul(large, large.T, on_cpu="emulate")
        except KeyboardInterrupt:
            waited = max(waited, time.monotonic() - sent[0])
            print("at once" if waited < 3 else f"after {waited} seconds", flush=True)
        os._exit(0)
    """
    assert said(program) == "at once"
