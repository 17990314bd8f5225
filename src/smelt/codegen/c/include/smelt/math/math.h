/* Elementary functions of generated kernels. No libm, no errno, no floating-point flags.
 *
 * Largest error in ULP that the tests allow (they sweep f32 bit patterns and sample f64, for every level and compiler):
 *              f32  f64                  f32  f64                  f32  f64                  f32  f64
 *   exp        1.5  1.5      sigmoid     3.0  3.0      asin        2.0  2.5      asinh       1.0  3.0
 *   expm1      2.0  2.5      softplus    2.5  2.5      acos        2.0  2.0      acosh       1.0  3.0
 *   log        1.5  1.5      sin         2.0  2.0      atan        2.0  2.5      atanh       1.0  3.0
 *   log1p      1.5  1.5      cos         2.0  2.0      sinh        1.0  3.0      pow         1.0  2.5
 *   erf        3.5  3.5      tan         4.0  4.0      cosh        1.0  2.5
 *   tanh       3.0  3.5      sqrt, recip, floor, ceil, round, trunc, fmod: exact or correctly rounded
 * gelu is off by at most 2 ULP of its argument in f32, 2.5 in f64. */
#ifndef SMELT_MATH_H
#define SMELT_MATH_H

#include <smelt/math/math_round.h>
#include <smelt/math/math_f32.h>
#include <smelt/math/math_f64.h>
#include <smelt/math/math_trig.h>
#include <smelt/math/math_pow.h>

#endif
