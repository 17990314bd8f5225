/* The element type that a unit is compiled for.
 *
 * Input:     SMELT_ELEMENT, a short dtype name such as f32, defined before a *_unit.h is included.
 * Output:    element, its C type; SMELT_FUNCTION(name), the unit's entry point for that type and CPU level.
 * Invariant: one unit serves one element type, so that only what a model uses is compiled.
 */
#ifndef SMELT_ELEMENT_H
#define SMELT_ELEMENT_H

#include <smelt/threads/loop.h>

#define SMELT_C_f32 float
#define SMELT_C_f64 double
#define SMELT_C_f16 uint16_t
#define SMELT_C_bf16 uint16_t
#define SMELT_C_i8 int8_t
#define SMELT_C_i16 int16_t
#define SMELT_C_i32 int32_t
#define SMELT_C_i64 int64_t
#define SMELT_C_u8 uint8_t
#define SMELT_C_u16 uint16_t
#define SMELT_C_u32 uint32_t
#define SMELT_C_u64 uint64_t
#define SMELT_C_b uint8_t

#define SMELT_JOIN_(a, b) a##b
#define SMELT_JOIN(a, b) SMELT_JOIN_(a, b)
#define SMELT_FUNCTION(name) SMELT_NAME(SMELT_JOIN(name, SMELT_ELEMENT))

typedef SMELT_JOIN(SMELT_C_, SMELT_ELEMENT) element;

#endif
