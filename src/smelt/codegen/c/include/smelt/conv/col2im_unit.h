/* Blocks of columns added up where they lie in an image: ONNX's Col2Im.
 *
 * Input:     b: x[images, block, places]; s: images, block, places, rank, then of each axis: image, block, places, stride,
 *            dilation, padding before. Output: b: y[images, image].
 * Invariant: what an element is the sum of is added in the order of blocks, then places; what lies in the padding is left out.
 */
#include <smelt/vec/element.h>
#include <string.h>

enum { SMELT_COL2IM_NUMBERS = 4, SMELT_COL2IM_AXIS = 6 };

/* The places of one row, the last axis: `y` is the line of the image. */
static void smelt_col2im_row(const int64_t *a, int64_t k, const element *x, element *y) {
  for (int64_t l = 0, at = k * a[4] - a[5]; l < a[2]; l++, at += a[3])
    if (at >= 0 && at < a[0]) y[at] = (element)(y[at] + x[l]);
}

static void smelt_col2im_block(const int64_t *axes, int64_t rank, int64_t k, int64_t rows, const element *x, element *y) {
  const int64_t *last = axes + (rank - 1) * SMELT_COL2IM_AXIS;
  for (int64_t row = 0; row < rows; row++) {
    int64_t offset = 0, stride = last[0], left = row, block = k / last[1], inside = 1;
    for (int64_t d = rank - 2; d >= 0; d--) {
      const int64_t *a = axes + d * SMELT_COL2IM_AXIS, at = left % a[2] * a[3] + block % a[1] * a[4] - a[5];
      inside &= at >= 0 && at < a[0];
      offset += at * stride, stride *= a[0], left /= a[2], block /= a[1];
    }
    if (inside) smelt_col2im_row(last, k % last[1], x + row * last[2], y + offset);
  }
}

static void smelt_col2im_body(void *context, int64_t task) {
  const smelt_task *t = (const smelt_task *)context;
  const int64_t block = t->s[1], places = t->s[2], rank = t->s[3], *axes = t->s + SMELT_COL2IM_NUMBERS;
  const int64_t last = axes[(rank - 1) * SMELT_COL2IM_AXIS + 2];
  int64_t size = 1;
  for (int64_t d = 0; d < rank; d++) size *= axes[d * SMELT_COL2IM_AXIS];
  for (int64_t image = task * t->step; image < smelt_min((task + 1) * t->step, t->units); image++) {
    const element *x = (const element *)t->b[0] + image * block * places;
    element *y = (element *)t->b[1] + image * size;
    memset(y, 0, (size_t)size * sizeof *y);
    for (int64_t k = 0; last && k < block; k++)
      smelt_col2im_block(axes, rank, k, places / last, x + k * places, y);
  }
}

int32_t SMELT_FUNCTION(smelt_col2im_)(smelt_task *t) {
  return smelt_launch(t, smelt_col2im_body, t->s[0], t->s[1] * t->s[2] * 2, 0);
}
