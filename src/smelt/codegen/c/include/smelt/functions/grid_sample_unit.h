/* An image sampled at places that come from data (GridSample).
 *
 * Input:     b: x[n, c, *sizes], grid[n, places, d], out[n, c, places]; s: n, c, places, d, mode, padding, align_corners,
 *            sizes (d of them). The last coordinate of a place belongs to the first of the sizes.
 * Output:    out. Invariant: corners and weights of a place are computed once and serve all channels; a place that is no
 *            number reads within the image.
 */
#include <smelt/vec/element.h>

enum { SMELT_LINEAR, SMELT_NEAREST };
enum { SMELT_ZEROS, SMELT_BORDER, SMELT_REFLECTION };
enum { SMELT_PLACES = 64, SMELT_CORNERS = 8 };

SMELT_INLINE float smelt_reflected(float x, float low, float high) {
  const float range = high - low;
  if (!(range > 0)) return low;
  const float distance = x < low ? low - x : x > high ? x - high : 0;
  if (distance == 0) return x;
  const float whole = __builtin_floorf(distance / range), rest = distance - whole * range;
  const int odd = whole - 2 * __builtin_floorf(whole / 2) != 0;
  return (x < low) != odd ? low + rest : high - rest;
}

/* A coordinate after padding, and whether its element counts. Not a number becomes 0. */
SMELT_INLINE int64_t smelt_corner(float x, int64_t size, int64_t padding, float low, float high, float *weight) {
  if (padding == SMELT_REFLECTION) x = smelt_reflected(x, low, high);
  const int inside = x >= 0 && x <= (float)(size - 1);
  if (padding == SMELT_ZEROS && !inside) *weight = 0;
  return inside ? (int64_t)x : x > 0 ? size - 1 : 0;
}

typedef struct {
  int64_t offset[SMELT_CORNERS][SMELT_PLACES];
  float weight[SMELT_CORNERS][SMELT_PLACES];
} smelt_corners;

static void smelt_find_corners(const smelt_task *t, const float *place, int64_t p, smelt_corners *to) {
  const int64_t d = t->s[3], mode = t->s[4], padding = t->s[5], align = t->s[6], *sizes = t->s + 7;
  const int64_t corners = mode == SMELT_NEAREST ? 1 : (int64_t)1 << d;
  for (int64_t c = 0; c < corners; c++) to->offset[c][p] = 0, to->weight[c][p] = 1;
  for (int64_t a = 0; a < d; a++) {
    const float size = (float)sizes[a], low = align ? 0.0f : -0.5f, high = align ? size - 1 : size - 0.5f;
    float x = place[d - 1 - a];
    x = align ? (x + 1) / 2 * (size - 1) : ((x + 1) * size - 1) / 2;
    if (mode == SMELT_NEAREST) x = __builtin_rintf(x);
    if (x < low || x > high) {
      if (padding == SMELT_BORDER) x = x < 0 ? 0 : x > size - 1 ? size - 1 : x;
      if (padding == SMELT_REFLECTION) x = smelt_reflected(x, low, high);
    }
    const float floor = mode == SMELT_NEAREST ? x : __builtin_floorf(x);
    for (int64_t c = 0; c < corners; c++) {
      const int64_t far = c >> a & 1;
      float weight = mode == SMELT_NEAREST ? 1 : far ? x - floor : floor + 1 - x;
      to->offset[c][p] = to->offset[c][p] * sizes[a] + smelt_corner(floor + (float)far, sizes[a], padding, low, high, &weight);
      to->weight[c][p] *= weight;
    }
  }
}

static void smelt_grid_body(void *context, int64_t task) {
  const smelt_task *t = context;
  const int64_t channels = t->s[1], places = t->s[2], d = t->s[3], blocks = (places + SMELT_PLACES - 1) / SMELT_PLACES;
  const int64_t corners = t->s[4] == SMELT_NEAREST ? 1 : (int64_t)1 << d;
  int64_t area = 1;
  for (int64_t a = 0; a < d; a++) area *= t->s[7 + a];
  for (int64_t unit = task * t->step; unit < smelt_min((task + 1) * t->step, t->units); unit++) {
    const int64_t image = unit / blocks, from = unit % blocks * SMELT_PLACES, count = smelt_min(places - from, SMELT_PLACES);
    smelt_corners at;
    for (int64_t p = 0; p < count; p++)
      smelt_find_corners(t, (const float *)t->b[1] + (image * places + from + p) * d, p, &at);
    for (int64_t c = 0; c < channels; c++) {
      const float *x = (const float *)t->b[0] + (image * channels + c) * area;
      float *out = (float *)t->b[2] + (image * channels + c) * places + from;
      for (int64_t p = 0; p < count; p++) {
        float sum = at.weight[0][p] == 0 ? 0 : at.weight[0][p] * x[at.offset[0][p]];
        for (int64_t k = 1; k < corners; k++)
          sum += at.weight[k][p] == 0 ? 0 : at.weight[k][p] * x[at.offset[k][p]];
        out[p] = sum;
      }
    }
  }
}

int32_t SMELT_FUNCTION(smelt_grid_sample_)(smelt_task *t) {
  const int64_t blocks = (t->s[2] + SMELT_PLACES - 1) / SMELT_PLACES;
  for (int64_t a = 0; a < t->s[3]; a++)
    if (t->s[7 + a] <= 0 && t->s[0] * t->s[1] * t->s[2] > 0) return smelt_fail(t->env, SMELT_E_INDEX, -1, 0, 0, 0);
  return smelt_launch(t, smelt_grid_body, t->s[0] * blocks, SMELT_PLACES * (t->s[1] * 16 + 60), 0);
}
