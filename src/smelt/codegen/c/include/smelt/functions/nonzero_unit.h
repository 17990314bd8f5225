/* Integers that something is divided by.
 *
 * Input:     b: x[count], out[count]; s: count.
 * Output:    out, a copy of x. Invariant: a 0 fails the region, as it fails a node of ONNX Runtime.
 */
#include <smelt/vec/element.h>

int32_t SMELT_FUNCTION(smelt_nonzero_)(smelt_task *t) {
  const element *x = t->b[0];
  element *out = t->b[1];
  int zero = 0;
  for (int64_t i = 0; i < t->s[0]; i++) zero |= (out[i] = x[i]) == 0;
  return zero ? smelt_fail(t->env, SMELT_E_DIVISION, -1, 0, 0, 0) : SMELT_OK;
}
