/* Determinants of small square matrices (Det).
 *
 * Input:     b: x[count, n, n], out[count], a copy of one matrix per unit; s: count, n.
 * Output:    out. Invariant: elimination with partial pivoting, in double precision.
 */
#include <smelt/vec/element.h>

static double smelt_eliminated(double *m, int64_t n) {
  double product = 1;
  for (int64_t i = 0; i < n; i++) {
    int64_t pivot = i;
    for (int64_t r = i + 1; r < n; r++)
      if (__builtin_fabs(m[r * n + i]) > __builtin_fabs(m[pivot * n + i])) pivot = r;
    if (pivot != i) {
      product = -product;
      for (int64_t c = i; c < n; c++) {
        const double held = m[i * n + c];
        m[i * n + c] = m[pivot * n + c];
        m[pivot * n + c] = held;
      }
    }
    product *= m[i * n + i];
    if (m[i * n + i] == 0) return product;
    for (int64_t r = i + 1; r < n; r++) {
      const double factor = m[r * n + i] / m[i * n + i];
      for (int64_t c = i + 1; c < n; c++) m[r * n + c] -= factor * m[i * n + c];
    }
  }
  return product;
}

static void smelt_determinant_body(void *context, int64_t task) {
  const smelt_task *t = context;
  const int64_t n = t->s[1], area = n * n;
  for (int64_t unit = task * t->step; unit < smelt_min((task + 1) * t->step, t->units); unit++) {
    double *m = (double *)t->b[2] + unit * area;
    for (int64_t i = 0; i < area; i++) m[i] = (double)((const element *)t->b[0])[unit * area + i];
    ((element *)t->b[1])[unit] = (element)smelt_eliminated(m, n);
  }
}

int32_t SMELT_FUNCTION(smelt_determinant_)(smelt_task *t) {
  return smelt_launch(t, smelt_determinant_body, t->s[0], t->s[1] * t->s[1] * t->s[1] * 4 + 8, 0);
}
