/* The vector vocabulary of generated kernels: one vector of SMELT_L lanes per dtype, and one function per operation.
 * See vec_types.h for the representation; elementary functions are in math.h. */
#ifndef SMELT_VEC_H
#define SMELT_VEC_H

#include <smelt/vec/vec_types.h>
#include <smelt/vec/vec_memory.h>
#include <smelt/vec/vec_convert.h>
#include <smelt/vec/vec_arith.h>
#include <smelt/vec/vec_divide.h>
#include <smelt/vec/vec_reduce.h>

#endif
