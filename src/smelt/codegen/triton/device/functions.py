"""Scalar functions of generated Triton kernels: what `ir/kernel/numpy_rules.py` states, over blocks.

Input: blocks of one element type. Output: a block of that type. Invariant: nothing here needs a GPU library, so that
Triton's interpreter runs what a GPU runs. This file is text for the generator: a kernel's module gets a copy of the
functions that it calls, and of those that these call.
"""

import triton
import triton.language as tl


@triton.jit
def floor_divide(a, b):
    """Rounds down; 0 for a divisor of 0."""
    safe = tl.where(b == 0, 1, b)
    quotient = a // safe
    rest = a - quotient * safe
    return tl.where(b == 0, 0, quotient - ((rest != 0) & ((rest < 0) != (safe < 0))).to(quotient.dtype))


@triton.jit
def floor_modulo(a, b):
    """The sign of the divisor; 0 for a divisor of 0."""
    safe = tl.where(b == 0, 1, b)
    rest = a - (a // safe) * safe
    return tl.where(b == 0, 0, tl.where((rest != 0) & ((rest < 0) != (safe < 0)), rest + safe, rest))


@triton.jit
def ordinary_divisor(b):
    """1 in place of 0 and -1, which a processor's division does not take of every dividend."""
    if b.dtype.is_int_signed():
        return tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    else:
        return tl.where(b == 0, 1, b).to(b.dtype)


@triton.jit
def whole_divide(a, b):
    """Rounds toward 0; 0 for a divisor of 0. The least integer divided by -1 is itself."""
    quotient = a // ordinary_divisor(b)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, tl.zeros_like(a) - a, quotient)
    return tl.where(b == 0, 0, quotient).to(a.dtype)


@triton.jit
def whole_modulo(a, b):
    """The sign of the divisor; 0 for a divisor of 0."""
    rest = whole_remainder(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).to(a.dtype)


@triton.jit
def whole_remainder(a, b):
    """The sign of the dividend; 0 for a divisor of 0."""
    safe = ordinary_divisor(b)
    rest = a - (a // safe) * safe
    if b.dtype.is_int_signed():
        rest = tl.where(b == -1, 0, rest)
    return tl.where(b == 0, 0, rest).to(a.dtype)


@triton.jit
def unsigned_modulo(a, b):
    safe = tl.where(b == 0, 1, b).to(a.dtype)
    return tl.where(b == 0, 0, a % safe).to(a.dtype)


@triton.jit
def float_modulo(a, b):
    """The sign of the divisor, as numpy's mod."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, tl.where(rest == 0, b * 0, rest))


@triton.jit
def shift_left(a, b, width: tl.constexpr):
    fits = (b >= 0) & (b < width)
    return tl.where(fits, a << tl.where(fits, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def shift_right(a, b, width: tl.constexpr):
    fits = (b >= 0) & (b < width)
    return tl.where(fits, a >> tl.where(fits, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def whole_power(a, b, width: tl.constexpr):
    """Wrapping; a negative exponent gives the truncated reciprocal."""
    out = tl.full((), 1, a.dtype) + tl.zeros_like(a)
    base = a
    left = tl.where(b < 0, 0, b).to(tl.int64)
    for _ in range(width):
        out = tl.where((left & 1) != 0, out * base, out).to(a.dtype)
        base = (base * base).to(a.dtype)
        left = left >> 1
    odd = (b.to(tl.int64) & 1) != 0
    below = tl.where(a == 1, 1, tl.where((a + 1).to(a.dtype) == 0, tl.where(odd, a, 1), 0)).to(a.dtype)
    return tl.where(b < 0, below, out).to(a.dtype)


@triton.jit
def divide(a, b):
    """Correctly rounded."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def square_root(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def round_half_even(x):
    """Adding 2^23 (2^52 for double) leaves no room for a fraction."""
    if x.dtype == tl.float64:
        shift = tl.full((), 4503599627370496.0, tl.float64)
    else:
        shift = tl.full((), 8388608.0, tl.float32)
    magnitude = tl.abs(x)
    whole = (magnitude + shift) - shift
    made = tl.where(magnitude < shift, whole, magnitude)
    return tl.where(x < 0, -made, tl.where(x == 0, x, made))


@triton.jit
def truncate(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def sign(x):
    return tl.where(x > 0, 1, tl.where(x < 0, -1, x)).to(x.dtype)


@triton.jit
def exponential(x):
    """ex2 of a GPU is exact for whole numbers and good to 2 ULP near 0; the argument is reduced to that."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        bounded = tl.minimum(tl.maximum(x, -104.0), 89.0)
        steps = round_half_even(bounded * 1.4426950408889634)
        rest = tl.fma(steps, tl.zeros_like(x) - 0.693359375, bounded)
        rest = tl.fma(steps, tl.zeros_like(x) + 2.12194440e-4, rest)
        low = tl.floor(steps * 0.5)
        made = (tl.exp2(rest * 1.4426950408889634) * tl.exp2(low)) * tl.exp2(steps - low)
        return tl.where(x != x, x, made)


@triton.jit
def logarithm(x):
    """log(m * 2^e) by the series of 2 artanh((m - 1) / (m + 1)), m between sqrt(1/2) and sqrt(2)."""
    if x.dtype == tl.float64:
        return tl.log(x)
    else:
        tiny = x < 1.17549435e-38
        scaled = tl.where(tiny, x * 8388608.0, x)
        bits = scaled.to(tl.int32, bitcast=True)
        exponent = ((bits >> 23) & 255) - 127
        mantissa = ((bits & 8388607) | 1065353216).to(tl.float32, bitcast=True)
        above = mantissa > 1.4142135
        mantissa = tl.where(above, mantissa * 0.5, mantissa)
        exponent = tl.where(above, exponent + 1, exponent)
        exponent = tl.where(tiny, exponent - 23, exponent).to(tl.float32)
        f = mantissa - 1.0
        s = tl.div_rn(f, f + 2.0)
        z = s * s
        series = z * (0.6666666666 + z * (0.4 + z * (0.2857142857 + z * (0.2222222222 + z * 0.1818181818))))
        half = f * f * 0.5
        made = exponent * 0.693359375 + (f - (half - (s * (half + series) + exponent * -2.12194440e-4)))
        made = tl.where(x == 0, float("-inf"), made)
        made = tl.where(x == float("inf"), x, made)
        return tl.where((x < 0) | (x != x), float("nan"), made)


@triton.jit
def log_of_1_plus(x):
    u = x + 1.0
    near = tl.where(u == 1.0, 1.0, u - 1.0)
    made = tl.where(u == 1.0, x, logarithm(u) * divide(x, near))
    return tl.where(x == float("inf"), x, made)


@triton.jit
def exponential_minus_1(x):
    """A series near 0, where the difference would cancel."""
    small = tl.abs(x) < 0.35
    y = tl.where(small, x, 0.0).to(x.dtype)
    if x.dtype == tl.float64:
        t = y / 18.0 + 1.0
        for n in tl.static_range(0, 16):
            t = t * (y / (17.0 - n)) + 1.0
        series = y * t
    else:
        t = 1.0 + y * (1 / 9)
        t = 1.0 + y * (1 / 8) * t
        t = 1.0 + y * (1 / 7) * t
        t = 1.0 + y * (1 / 6) * t
        t = 1.0 + y * (1 / 5) * t
        t = 1.0 + y * (1 / 4) * t
        t = 1.0 + y * (1 / 3) * t
        series = y + y * (y * 0.5 * t)
    return tl.where(small, series, exponential(x) - 1.0)


@triton.jit
def tangent_hyperbolic(x):
    """From exp(-2|x|) - 1, which no argument overflows."""
    t = exponential_minus_1(-2.0 * tl.abs(x))
    made = divide(-t, t + 2.0)
    return tl.where(x < 0, -made, tl.where(x == 0, x, made))


@triton.jit
def sigmoid(x):
    small = exponential(-tl.abs(x))
    return divide(tl.where(x >= 0, 1.0, small), 1.0 + small)


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log_of_1_plus(exponential(-tl.abs(x)))


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def tangent(x):
    return divide(tl.sin(x), tl.cos(x))


@triton.jit
def arc_tangent(x):
    """Two halvings of the angle, then the series; in double, whose arithmetic is not the time that this takes."""
    wide = tl.abs(x).to(tl.float64)
    inverted = wide > 1.0
    y = tl.where(inverted, 1.0 / tl.where(inverted, wide, 1.0), wide)
    y = y / (1.0 + tl.sqrt(1.0 + y * y))
    y = y / (1.0 + tl.sqrt(1.0 + y * y))
    z = y * y
    t = tl.zeros_like(z) + 1.0 / 23.0
    for n in tl.static_range(0, 11):
        t = 1.0 / (21.0 - 2.0 * n) - z * t
    made = 4.0 * y * t
    half_pi = tl.full((), 1.5707963267948966, tl.float64)
    made = tl.where(inverted, half_pi - made, made)
    made = tl.where(x != x, wide, made)
    return tl.where(x < 0, -made, made).to(x.dtype)


@triton.jit
def arc_sine(x):
    wide = x.to(tl.float64)
    return arc_tangent(wide / tl.sqrt((1.0 - wide) * (1.0 + wide))).to(x.dtype)


@triton.jit
def arc_cosine(x):
    wide = x.to(tl.float64)
    return (2.0 * arc_tangent(tl.sqrt((1.0 - wide) / (1.0 + wide)))).to(x.dtype)


@triton.jit
def sine_hyperbolic(x):
    """exp(|x| / 2) twice where exp(|x|) may overflow."""
    a = tl.abs(x)
    t = exponential_minus_1(tl.minimum(a, 80.0))
    h = exponential(0.5 * a)
    made = tl.where(a < 80.0, 0.5 * (t + divide(t, t + 1.0)), (0.5 * h) * h)
    made = tl.where(x != x, x, made)
    return tl.where(x < 0, -made, made)


@triton.jit
def cosine_hyperbolic(x):
    a = tl.abs(x)
    e = exponential(tl.minimum(a, 80.0))
    h = exponential(0.5 * a)
    made = tl.where(a < 80.0, 0.5 * (e + divide(tl.zeros_like(e) + 1.0, e)), (0.5 * h) * h)
    return tl.where(x != x, x, made)


@triton.jit
def area_sine(x):
    a = tl.abs(x)
    near = tl.minimum(a, 1000.0)
    square = near * near
    made = log_of_1_plus(near + divide(square, 1.0 + square_root(1.0 + square)))
    made = tl.where(a > 1000.0, logarithm(a) + 0.6931471805599453 + divide(tl.zeros_like(a) + 0.25, a * a), made)
    made = tl.where(x != x, x, made)
    return tl.where(x < 0, -made, tl.where(x == 0, x, made))


@triton.jit
def area_cosine(x):
    t = tl.minimum(x, 1000.0) - 1.0
    made = log_of_1_plus(t + square_root(t * (t + 2.0)))
    made = tl.where(x > 1000.0, logarithm(x) + 0.6931471805599453 - divide(tl.zeros_like(x) + 0.25, x * x), made)
    return tl.where((x < 1.0) | (x != x), float("nan"), made)


@triton.jit
def area_tangent(x):
    a = tl.abs(x)
    made = 0.5 * log_of_1_plus(divide(2.0 * a, 1.0 - a))
    made = tl.where(a == 1.0, float("inf"), made)
    return tl.where(x < 0, -made, tl.where(x == 0, x, made))


@triton.jit
def power(a, b):
    """exp(b log |a|) in double, with the sign of odd powers and the cases that IEEE 754 lists."""
    base = a.to(tl.float64)
    exponent = b.to(tl.float64) + tl.zeros_like(base)
    magnitude = tl.abs(base)
    made = tl.exp(exponent * tl.log(magnitude))
    whole = tl.floor(exponent) == exponent
    half = exponent * 0.5
    odd = whole & (tl.floor(half) != half) & (tl.abs(exponent) < 9007199254740992.0)
    made = tl.where(base < 0, tl.where(whole, tl.where(odd, -made, made), float("nan")), made)
    zero = tl.where(exponent > 0, 0.0, float("inf"))
    made = tl.where(magnitude == 0, tl.where(odd & (1.0 / base < 0), -zero, zero), made)
    endless = tl.abs(exponent) == float("inf")
    grows = (magnitude > 1) == (exponent > 0)
    made = tl.where(endless, tl.where(magnitude == 1, 1.0, tl.where(grows, float("inf"), 0.0)), made)
    made = tl.where((base != base) | (exponent != exponent), float("nan"), made)
    return tl.where((exponent == 0) | (base == 1), 1.0, made).to(a.dtype)


@triton.jit
def multiply_two(a, b):
    return a * b


@triton.jit
def row_maximum(x):
    """NaN where there is one."""
    bad = tl.max((x != x).to(tl.int32), axis=1, keep_dims=True)
    top = tl.max(tl.where(x != x, float("-inf"), x), axis=1, keep_dims=True)
    return tl.where(bad != 0, float("nan"), top)


@triton.jit
def online_maximum(top, new):
    """Of what a row has shown so far; NaN stays."""
    return tl.maximum(top, new, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def row_minimum(x):
    bad = tl.max((x != x).to(tl.int32), axis=1, keep_dims=True)
    low = tl.min(tl.where(x != x, float("inf"), x), axis=1, keep_dims=True)
    return tl.where(bad != 0, float("nan"), low)


@triton.jit
def row_first(value, place, best):
    """The least place of those whose value is the best of the row."""
    hit = (value == best) | ((value != value) & (best != best))
    return tl.min(tl.where(hit, place, 9223372036854775807), axis=1, keep_dims=True)


@triton.jit
def row_last(value, place, best):
    hit = (value == best) | ((value != value) & (best != best))
    return tl.max(tl.where(hit, place, -1), axis=1, keep_dims=True)
