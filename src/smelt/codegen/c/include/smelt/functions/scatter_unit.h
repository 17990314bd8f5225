/* Updates written into a copy of a tensor, at indices that come from data.
 *
 * Input:     SMELT_REDUCTION: what an update does to the element that is there.
 *   elements: b: data, indices (int64), updates, out; s: rank, axis, dims of data, dims of indices.
 *   slices:   b: data, indices (int64), updates, out, an offset per index tuple; s: tuples, length of a tuple, elements of a
 *             slice, elements of data, leading dims of data.
 * Output:    out, which may be data itself: nothing is copied then. Invariant: all indices are checked before anything is
 *            written; updates of one element are applied in the order of the indices, whatever the number of threads.
 */
#include <smelt/vec/element.h>
#include <string.h>

enum { SMELT_REPLACE, SMELT_ADD, SMELT_MUL, SMELT_MIN, SMELT_MAX };

SMELT_INLINE element smelt_updated(element old, element new) {
  switch (SMELT_REDUCTION) {
    case SMELT_ADD: return (element)(old + new);
    case SMELT_MUL: return (element)(old * new);
    case SMELT_MIN: return old != old ? old : new < old || new != new ? new : old;
    case SMELT_MAX: return old != old ? old : new > old || new != new ? new : old;
    default: return new;
  }
}

SMELT_INLINE int64_t smelt_wrapped(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

static int32_t smelt_check_indices(smelt_task *t, const int64_t *index, int64_t count, int64_t stride, int64_t size) {
  for (int64_t i = 0; i < count; i++)
    if (index[i * stride] < -size || index[i * stride] >= size)
      return smelt_fail(t->env, SMELT_E_INDEX, -1, index[i * stride], size, 0);
  return SMELT_OK;
}

SMELT_INLINE int64_t smelt_volume(const int64_t *dims, int64_t from, int64_t to) {
  int64_t count = 1;
  for (int64_t d = from; d < to; d++) count *= dims[d];
  return count;
}

/* The offset in `dims`, axes [from, to), of the place with number `flat` in `sizes`. */
static int64_t smelt_offset(int64_t flat, const int64_t *sizes, const int64_t *dims, int64_t from, int64_t to) {
  int64_t offset = 0, stride = 1;
  for (int64_t d = to - 1; d >= from; d--) {
    offset += flat % sizes[d] * stride;
    flat /= sizes[d];
    stride *= dims[d];
  }
  return offset;
}

/* One unit is one place before the axis: no two units meet the same element. */
static void smelt_scatter_body(void *context, int64_t task) {
  const smelt_task *t = context;
  const int64_t rank = t->s[0], axis = t->s[1], *dims = t->s + 2, *sizes = dims + rank;
  const int64_t inner = smelt_volume(sizes, axis + 1, rank), stride = smelt_volume(dims, axis + 1, rank);
  for (int64_t unit = task * t->step; unit < smelt_min((task + 1) * t->step, t->units); unit++) {
    const int64_t *index = (const int64_t *)t->b[1] + unit * sizes[axis] * inner;
    const element *update = (const element *)t->b[2] + unit * sizes[axis] * inner;
    element *out = (element *)t->b[3] + smelt_offset(unit, sizes, dims, 0, axis) * dims[axis] * stride;
    for (int64_t j = 0; j < sizes[axis]; j++)
      for (int64_t i = 0; i < inner; i++) {
        const int64_t place = inner == stride ? i : smelt_offset(i, sizes, dims, axis + 1, rank);
        element *at = out + smelt_wrapped(index[j * inner + i], dims[axis]) * stride + place;
        *at = smelt_updated(*at, update[j * inner + i]);
      }
  }
}

int32_t SMELT_FUNCTION(SMELT_SCATTER_ELEMENTS)(smelt_task *t) {
  const int64_t rank = t->s[0], axis = t->s[1], *dims = t->s + 2, *sizes = dims + rank;
  const int64_t count = smelt_volume(sizes, 0, rank), outer = smelt_volume(sizes, 0, axis);
  if (smelt_check_indices(t, t->b[1], count, 1, dims[axis])) return t->env->code;
  if (t->b[3] != t->b[0]) memcpy(t->b[3], t->b[0], (size_t)smelt_volume(dims, 0, rank) * sizeof(element));
  return count ? smelt_launch(t, smelt_scatter_body, outer, count / outer * 8, 0) : SMELT_OK;
}

/* One unit is some columns of every slice. */
enum { SMELT_SLICE_COLUMNS = 1024 };

static void smelt_slices_body(void *context, int64_t task) {
  const smelt_task *t = context;
  const int64_t tuples = t->s[0], slice = t->s[2], *offsets = t->b[4];
  const int64_t from = task * t->step * SMELT_SLICE_COLUMNS;
  const int64_t to = smelt_min(smelt_min((task + 1) * t->step, t->units) * SMELT_SLICE_COLUMNS, slice);
  for (int64_t r = 0; r < tuples; r++) {
    element *out = (element *)t->b[3] + offsets[r];
    const element *update = (const element *)t->b[2] + r * slice;
    for (int64_t i = from; i < to; i++) out[i] = smelt_updated(out[i], update[i]);
  }
}

int32_t SMELT_FUNCTION(SMELT_SCATTER_SLICES)(smelt_task *t) {
  const int64_t tuples = t->s[0], length = t->s[1], slice = t->s[2], *dims = t->s + 4;
  const int64_t *index = t->b[1];
  int64_t *offsets = t->b[4];
  for (int64_t d = 0; d < length; d++)
    if (smelt_check_indices(t, index + d, tuples, length, dims[d])) return t->env->code;
  for (int64_t r = 0; r < tuples; r++) {
    int64_t at = 0;
    for (int64_t d = 0; d < length; d++) at = at * dims[d] + smelt_wrapped(index[r * length + d], dims[d]);
    offsets[r] = at * slice;
  }
  if (t->b[3] != t->b[0]) memcpy(t->b[3], t->b[0], (size_t)t->s[3] * sizeof(element));
  const int64_t units = (slice + SMELT_SLICE_COLUMNS - 1) / SMELT_SLICE_COLUMNS;
  return smelt_launch(t, smelt_slices_body, units, tuples * smelt_min(slice, SMELT_SLICE_COLUMNS) * 2, 0);
}
