/* Elementary functions of generated kernels. No libm, no errno, no floating-point flags. */
#ifndef SMELT_MATH_H
#define SMELT_MATH_H

#include "math_round.h"
#include "math_f32.h"
#include "math_f64.h"
#include "math_trig.h"
#include "math_pow.h"

#endif
