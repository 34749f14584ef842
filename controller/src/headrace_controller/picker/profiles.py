"""How fast GPUs compute prompts, relative to each other: where learning starts.

Only ratios matter, for what a pool's model costs is learned by the pool. The figures are the dense 16-bit
tensor throughput of the vendors' data sheets, in TFLOP/s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_TFLOPS: Final = {
    "B300": 2250.0,
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIE": 756.0,
    "H100": 989.0,
    "GH200": 989.0,
    "H20": 148.0,
    "H800": 989.0,
    "A100": 312.0,
    "A800": 312.0,
    "A40": 150.0,
    "A30": 165.0,
    "A10": 125.0,
    "L40S": 362.0,
    "L40": 181.0,
    "L20": 119.0,
    "L4": 121.0,
    "T4": 65.0,
    "V100": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
    "RTX 6000 ADA": 364.0,
    "RTX A6000": 155.0,
    "MI300X": 1307.0,
    "MI325X": 1307.0,
    "MI250": 362.0,
    "MI210": 181.0,
}
# A longer name goes first: "L40S" is no "L40".
_NAMES: Final = sorted(_TFLOPS, key=len, reverse=True)
_UNIT: Final = 989.0


def speed_of(gpus: Iterable[str]) -> float:
    """The speed of a cell on these GPUs, 1 = one H100; 1 where a name is not known or there is none."""
    total = 0.0
    for name in gpus:
        upper = name.upper()
        known = next((each for each in _NAMES if each in upper), None)
        if known is None:
            return 1.0
        total += _TFLOPS[known] / _UNIT
    return total or 1.0
