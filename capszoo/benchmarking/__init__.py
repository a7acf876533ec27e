"""Speed and memory, as ratios to the formulation of open implementations, measured in one run.

Open implementations of capsule networks store votes as [N, I, O, D], form
variances in two passes and leave gradients to automatic differentiation. That formulation, `textbook.py`,
shares our weights, gives our outputs, and has its turns between ours.
"""

from capszoo.benchmarking.bundles import compare_bundle
from capszoo.benchmarking.drawing import draw_scaling
from capszoo.benchmarking.image_sides import benchmark_sides
from capszoo.benchmarking.published import record_speeds
from capszoo.benchmarking.report import SECONDS, SIZES, benchmark, benchmark_routing, write
from capszoo.benchmarking.tables import show

__all__ = [
    "SECONDS",
    "SIZES",
    "benchmark",
    "benchmark_routing",
    "benchmark_sides",
    "compare_bundle",
    "draw_scaling",
    "record_speeds",
    "show",
    "write",
]
