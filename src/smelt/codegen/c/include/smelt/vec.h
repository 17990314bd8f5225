/* The vector vocabulary of generated kernels: one vector of SMELT_L lanes per dtype, and one function per operation.
 * See vec_types.h for the representation; elementary functions are in math.h. */
#ifndef SMELT_VEC_H
#define SMELT_VEC_H

#include "vec_types.h"
#include "vec_memory.h"
#include "vec_convert.h"
#include "vec_arith.h"
#include "vec_divide.h"
#include "vec_reduce.h"

#endif
