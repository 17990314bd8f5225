/* Regions of images, each pooled to a grid of bins from points that are interpolated: ONNX's RoiAlign.
 *
 * Input:     b: x[images, channels, height, width], regions[n, 4], image of each region (int64). s: images, channels, height, width,
 *            n, bins down, bins across, points of a bin along each axis (0: as many as pixels), whether the largest is taken,
 *            whether pixels are at halves. f: scale of the coordinates.
 * Output:    b: y[n, channels, bins down, bins across].
 * Invariant: points outside of the image count as 0, as do those of regions that are no numbers. The largest is that of the
 *            weighted corners, as in ONNX Runtime.
 */
#include <smelt/threads/loop.h>

enum { SMELT_ROI_CHUNK = 64 };

typedef struct {
  int64_t at[4];
  float w[4];
} smelt_roi_point;

static smelt_roi_point smelt_roi_point_at(float y, float x, int64_t height, int64_t width) {
  smelt_roi_point p = {{0}, {0}};
  if (!(y >= -1.0f && y <= (float)height && x >= -1.0f && x <= (float)width)) return p;
  y = y > 0 ? y : 0, x = x > 0 ? x : 0;
  int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) y0 = y1 = height - 1, y = (float)y0;
  if (x0 >= width - 1) x0 = x1 = width - 1, x = (float)x0;
  const float ly = y - (float)y0, lx = x - (float)x0, hy = 1.0f - ly, hx = 1.0f - lx;
  return (smelt_roi_point){{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
                           {hy * hx, hy * lx, ly * hx, ly * lx}};
}

static void smelt_roi_add(const smelt_roi_point *points, int64_t count, const float *x, int64_t channels, int64_t size, float *y,
                          int64_t step, int largest, int first) {
  for (int64_t c = 0; c < channels; c++, x += size, y += step) {
    float sum = first ? 0 : *y;
    for (int64_t i = 0; i < count; i++) {
      const smelt_roi_point *p = &points[i];
      const float v[4] = {p->w[0] * x[p->at[0]], p->w[1] * x[p->at[1]], p->w[2] * x[p->at[2]], p->w[3] * x[p->at[3]]};
      if (!largest) {
        sum += v[0] + v[1] + v[2] + v[3];
        continue;
      }
      float most = v[0];
      for (int k = 1; k < 4; k++) most = v[k] > most ? v[k] : most;
      sum = (first && !i) || most > sum ? most : sum;
    }
    *y = sum;
  }
}

static int64_t smelt_roi_points(int64_t ratio, float size) {
  if (ratio > 0) return ratio;
  const float wanted = __builtin_ceilf(size);
  return wanted > 0 ? wanted < 1e6f ? (int64_t)wanted : 1000000 : 0;
}

/* A unit is one row of bins of one region. */
static void smelt_roi_body(void *context, int64_t task) {
  const smelt_task *t = (const smelt_task *)context;
  const int64_t channels = t->s[1], height = t->s[2], width = t->s[3], down = t->s[5], across = t->s[6], ratio = t->s[7];
  const float scale = (float)t->f[0], offset = t->s[9] ? 0.5f : 0.0f;
  for (int64_t unit = task * t->step; unit < smelt_min((task + 1) * t->step, t->units); unit++) {
    const int64_t region = unit / down, row = unit % down;
    const float *r = (const float *)t->b[1] + region * 4;
    const float *x = (const float *)t->b[0] + ((const int64_t *)t->b[2])[region] * channels * height * width;
    const float x0 = r[0] * scale - offset, y0 = r[1] * scale - offset;
    float wide = r[2] * scale - offset - x0, high = r[3] * scale - offset - y0;
    if (!t->s[9]) wide = wide > 1.0f ? wide : 1.0f, high = high > 1.0f ? high : 1.0f;
    const float bin_h = high / (float)down, bin_w = wide / (float)across;
    const int64_t gh = smelt_roi_points(ratio, bin_h), gw = smelt_roi_points(ratio, bin_w), all = gh * gw;
    for (int64_t col = 0; col < across; col++) {
      float *y = (float *)t->b[3] + (region * channels * down + row) * across + col;
      smelt_roi_point points[SMELT_ROI_CHUNK];
      for (int64_t done = 0; done == 0 || done < all; done += SMELT_ROI_CHUNK) {
        const int64_t count = smelt_min(SMELT_ROI_CHUNK, all - done);
        for (int64_t i = 0; i < count; i++)
          points[i] = smelt_roi_point_at(y0 + (float)row * bin_h + ((float)((done + i) / gw) + 0.5f) * bin_h / (float)gh,
                                         x0 + (float)col * bin_w + ((float)((done + i) % gw) + 0.5f) * bin_w / (float)gw,
                                         height, width);
        smelt_roi_add(points, count, x, channels, height * width, y, down * across, (int)t->s[8], done == 0);
      }
      for (int64_t c = 0; !t->s[8] && all > 1 && c < channels; c++) y[c * down * across] /= (float)all;
    }
  }
}

int32_t SMELT_NAME(smelt_roi_align)(smelt_task *t);
int32_t SMELT_NAME(smelt_roi_align)(smelt_task *t) {
  const int64_t *image = (const int64_t *)t->b[2];
  for (int64_t i = 0; i < t->s[4]; i++)
    if (image[i] < 0 || image[i] >= t->s[0]) return smelt_fail(t->env, SMELT_E_INDEX, -1, image[i], t->s[0], 0);
  if (!t->s[1] || !t->s[2] || !t->s[3]) return t->s[1] && t->s[4] ? smelt_fail(t->env, SMELT_E_SHAPE, 0, 2, 0, 1) : SMELT_OK;
  return smelt_launch(t, smelt_roi_body, t->s[4] * t->s[5], t->s[1] * t->s[6] * 16, 0);
}
