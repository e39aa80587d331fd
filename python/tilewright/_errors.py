"""The exceptions of the package.

Each is an `Error`, and also the exception of Python's own that fits.
"""

__all__ = ["ArgumentError", "DeviceError", "Error", "OperandTypeError", "OutOfMemoryError"]


class Error(Exception):
    """What all exceptions of this package are."""

    __module__ = "tilewright"


class ArgumentError(Error, ValueError):
    """A shape, a layout, a device or an option that does not go; the message says which, and what to do."""

    __module__ = "tilewright"


class OperandTypeError(Error, TypeError):
    """An operand or an option of a wrong type, or an operand with elements other than float32."""

    __module__ = "tilewright"


class OutOfMemoryError(Error, MemoryError):
    """Too little memory on the device, or in the process."""

    __module__ = "tilewright"


class DeviceError(Error, RuntimeError):
    """The device, its driver or a kernel has failed, or is not there."""

    __module__ = "tilewright"
