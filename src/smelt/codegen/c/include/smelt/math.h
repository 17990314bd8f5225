/* Elementary functions of generated kernels. No libm, no tables in memory, no errno, no flags. */
#ifndef SMELT_MATH_H
#define SMELT_MATH_H

#include "math_round.h"
#include "math_f32.h"

#endif
