/* Tensors as functions of a user's own see them.
 *
 * Input:     memory, sizes and rank of a tensor.
 * Output:    `smelt_array`. Invariant: elements lie contiguously, the last axis varies fastest.
 */
#ifndef SMELT_FUNCTIONS_USER_H
#define SMELT_FUNCTIONS_USER_H
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct smelt_array_ {
  void *data;
  const int64_t *shape;
  int64_t rank;
  int64_t size; /* elements */
} smelt_array;

static inline smelt_array smelt_array_of(void *data, const int64_t *shape, int64_t rank) {
  smelt_array made = {data, shape, rank, 1};
  for (int64_t axis = 0; axis < rank; axis++) made.size *= shape[axis];
  return made;
}
#endif
