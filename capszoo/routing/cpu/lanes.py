"""Sixteen float32 side by side in Numba: vector arithmetic that does not wait for the compiler to discover it.

Numba's own loops over arrays become vector instructions only where LLVM can prove that nothing overlaps and no index
is negative. `Lanes` says it outright: one register of AVX-512, two of AVX2, four of NEON.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model
from numba.np.arrayobj import make_array

LANES = 16
_FLOAT, _WORD = ir.FloatType(), ir.IntType(32)
_VECTOR, _WORDS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_WORD, LANES)


class _Lanes(types.Type):
    def __init__(self):
        super().__init__(name="Lanes")


lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _address(context, builder, signature, arguments):
    """Where `array[offset]` lies; without Numba's care for negative offsets."""
    array = make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


def _broadcast(builder, number):
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    vector = builder.insert_element(undefined, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(vector, undefined, ir.Constant(_WORDS, [0] * LANES))


def _library(builder, name, result, *arguments, **flags):
    """Calls `llvm.{name}` for sixteen float32."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32")
    return builder.call(function, arguments, **flags)


@intrinsic
def load(typing_context, array, offset):
    """Lanes of `array[offset : offset + 16]`, a contiguous array of one axis."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature, arguments)
        return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)

    return lanes(array, types.intp), generate


@intrinsic
def store(typing_context, array, offset, value):
    """`array[offset : offset + 16] = value`."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature, arguments)
        builder.store(arguments[2], builder.bitcast(address, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def broadcast(typing_context, number):
    """`number` in every lane."""

    def generate(context, builder, signature, arguments):
        return _broadcast(builder, arguments[0])

    return lanes(types.float32), generate


@intrinsic
def broadcast_at(typing_context, array, offset):
    """`array[offset]` in every lane."""

    def generate(context, builder, signature, arguments):
        return _broadcast(builder, builder.load(_address(context, builder, signature, arguments)))

    return lanes(array, types.intp), generate


@intrinsic
def fma(typing_context, a, b, c):
    """a * b + c, rounded once."""

    def generate(context, builder, signature, arguments):
        return _library(builder, "fma", _VECTOR, *arguments)

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def horizontal_sum(typing_context, a):
    """The sum over the lanes."""

    def generate(context, builder, signature, arguments):
        zero = ir.Constant(_FLOAT, -0.0)
        return _library(builder, "vector.reduce.fadd", _FLOAT, zero, *arguments, fastmath=("reassoc",))

    return types.float32(lanes), generate


@intrinsic
def horizontal_max(typing_context, a):
    """The largest of the lanes."""

    def generate(context, builder, signature, arguments):
        return _library(builder, "vector.reduce.fmax", _FLOAT, *arguments)

    return types.float32(lanes), generate


@intrinsic
def maximum(typing_context, a, b):
    """The larger one, lane by lane; a where they cannot be compared."""

    def generate(context, builder, signature, arguments):
        return builder.select(builder.fcmp_unordered(">", *arguments), *arguments)

    return lanes(lanes, lanes), generate


@intrinsic
def minimum(typing_context, a, b):
    """The smaller one, lane by lane; a where they cannot be compared."""

    def generate(context, builder, signature, arguments):
        return builder.select(builder.fcmp_unordered("<", *arguments), *arguments)

    return lanes(lanes, lanes), generate


@intrinsic
def _round(typing_context, a):
    def generate(context, builder, signature, arguments):
        return _library(builder, "nearbyint", _VECTOR, *arguments)

    return lanes(lanes), generate


@intrinsic
def _two_to(typing_context, a):
    """2^a for whole a from -126 to 127: a, with its bias, is the exponent of the number."""

    def generate(context, builder, signature, arguments):
        whole = builder.fptosi(arguments[0], _WORDS)
        bias, place = (ir.Constant(_WORDS, [number] * LANES) for number in (127, 23))
        return builder.bitcast(builder.shl(builder.add(whole, bias), place), _VECTOR)

    return lanes(lanes), generate


@intrinsic
def _scaled(typing_context, a, power):
    """a * 2^power for whole powers from -120 to 120 and a near one, to whose exponent they are added."""

    def generate(context, builder, signature, arguments):
        place = ir.Constant(_WORDS, [23] * LANES)
        whole = builder.shl(builder.fptosi(arguments[1], _WORDS), place)
        return builder.bitcast(builder.add(builder.bitcast(arguments[0], _WORDS), whole), _VECTOR)

    return lanes(lanes, lanes), generate


@intrinsic
def _zero_below(typing_context, x, value):
    """Zero where x < -80, else `value`."""

    def generate(context, builder, signature, arguments):
        lowest = ir.Constant(_VECTOR, [-80.0] * LANES)
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<", arguments[0], lowest), zero, arguments[1])

    return lanes(lanes, lanes), generate


@intrinsic
def zero_unless_positive(typing_context, x, value):
    """Zero where x <= 0, else `value`."""

    def generate(context, builder, signature, arguments):
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<=", arguments[0], zero), zero, arguments[1])

    return lanes(lanes, lanes), generate


def _define(function, instruction):
    """Makes Python's operator `function` work on lanes."""

    @intrinsic
    def compute(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return lanes(lanes, lanes), generate

    @overload(function)
    def implementation(a, b):
        if a is lanes and b is lanes:
            return lambda a, b: compute(a, b)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")

_LOG2_E = np.float32(1.4426950408889634)
_MINUS_2_LOG2_E = np.float32(-2.0) * _LOG2_E
# ln 2 in two parts, so that whole * ln 2 loses nothing.
_LN2_HIGH, _LN2_LOW = np.float32(0.693145751953125), np.float32(1.428606765330187e-06)
# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2, from the highest power down (Cephes, S. Moshier).
_C5, _C4, _C3, _C2, _C1, _C0 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
)


@njit(inline="always")
def exp(x):
    """exp(x) for x <= 88, to 1e-7 of itself; zero below -80, which keeps what it multiplies out of the denormals."""
    whole = _round(x * broadcast(_LOG2_E))
    r = x - whole * broadcast(_LN2_HIGH) - whole * broadcast(_LN2_LOW)
    p = fma(broadcast(_C5), r, broadcast(_C4))
    p = fma(p, r, broadcast(_C3))
    p = fma(p, r, broadcast(_C2))
    p = fma(p, r, broadcast(_C1))
    p = fma(p, r, broadcast(_C0))
    return _zero_below(x, (fma(p * r, r, r) + broadcast(np.float32(1.0))) * _two_to(whole))


# 2^f for |f| <= 1/2, from the highest power down, to 1e-7 of itself.
_P5, _P4, _P3, _P2, _P1, _P0 = (
    np.float32(c) for c in (1.3276454e-3, 9.675541e-3, 5.5507135e-2, 2.402212e-1, 6.9314694e-1, 1.0000001)
)


@njit(inline="always")
def _logistic(power):
    """1 / (1 + 2^power)."""
    limit, one = broadcast(np.float32(120.0)), broadcast(np.float32(1.0))
    power = minimum(maximum(power, broadcast(np.float32(-120.0))), limit)
    whole = _round(power)
    f = power - whole
    p = fma(broadcast(_P5), f, broadcast(_P4))
    p = fma(p, f, broadcast(_P3))
    p = fma(p, f, broadcast(_P2))
    p = fma(p, f, broadcast(_P1))
    p = fma(p, f, broadcast(_P0))
    return one / (one + _scaled(p, whole))


@njit(inline="always")
def sigmoid(x):
    """1 / (1 + exp(-x)), to 1.5e-7."""
    return _logistic(x * broadcast(-_LOG2_E))


@njit(inline="always")
def tanh(x):
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)), to 2e-7."""
    return fma(
        broadcast(np.float32(2.0)), _logistic(x * broadcast(_MINUS_2_LOG2_E)), broadcast(np.float32(-1.0))
    )
