/* The operands, numbers and columns of an 8-bit layer: a convolution over an NHWC image, of which a product of rows is a case.
 *
 * Input:     smelt_task: b and s as the enums below count them. The image is [batch, H, W, C] (with SMELT_LS_NCHW, for lines of the
 *            kernel, [batch, C, H, W]), uint8 or int8; weights are packed
 *            (the layouts of int8_panels.py). Zero points, bias and residual may be absent. Scales of the weights, their zero points
 *            and the bias are one or one for each column; an int32 bias has a scale of its own, or (SMELT_LS_BIAS_SCALES is 0) that of
 *            the products. With a shift the quantized result is restored, the shift added, and quantized by the second scale. A table
 *            has the byte that each final byte becomes.
 * Output:    smelt_int8_layer with the stage of its epilogue; what each column needs lies in scratch memory.
 * Invariant: f has the limits of the result, then those of the sum with the residual, as numbers (infinite where there are none).
 */
#ifndef SMELT_INT8_LAYER_H
#define SMELT_INT8_LAYER_H

#include <smelt/int8/int8_epilogue.h>

enum { SMELT_LB_X, SMELT_LB_W, SMELT_LB_X_SCALE, SMELT_LB_X_ZERO, SMELT_LB_W_SCALE, SMELT_LB_W_ZERO, SMELT_LB_BIAS, SMELT_LB_BIAS_SCALE,
       SMELT_LB_Y_SCALE, SMELT_LB_Y_ZERO, SMELT_LB_R, SMELT_LB_R_SCALE, SMELT_LB_R_ZERO, SMELT_LB_Z_SCALE, SMELT_LB_Z_ZERO,
       SMELT_LB_SHIFT, SMELT_LB_SECOND_SCALE, SMELT_LB_SECOND_ZERO, SMELT_LB_TABLE, SMELT_LB_Y, SMELT_LB_SCRATCH };
enum { SMELT_LS_BATCH, SMELT_LS_H, SMELT_LS_W, SMELT_LS_C, SMELT_LS_OH, SMELT_LS_OW, SMELT_LS_COLUMNS, SMELT_LS_GROUPS, SMELT_LS_KH,
       SMELT_LS_KW, SMELT_LS_SH, SMELT_LS_SW, SMELT_LS_DH, SMELT_LS_DW, SMELT_LS_TOP, SMELT_LS_LEFT, SMELT_LS_LINES, SMELT_LS_X_SIGNED,
       SMELT_LS_W_SIGNED, SMELT_LS_STEP, SMELT_LS_RESULT, SMELT_LS_W_SCALES, SMELT_LS_W_ZEROS, SMELT_LS_BIASES, SMELT_LS_BIAS_SCALES,
       SMELT_LS_R_SIGNED, SMELT_LS_NCHW, SMELT_LS_SHIFTS };
enum { SMELT_LF_LOW, SMELT_LF_HIGH, SMELT_LF_SUM_LOW, SMELT_LF_SUM_HIGH };

typedef struct {
  const smelt_task *task;
  const int64_t *s;
  smelt_int8_stage stage;
  int32_t x_zero;  /* as it is stored */
  int64_t padded;  /* columns of a group, in whole panels */
  int64_t panels;  /* of a group */
  char *scratch;   /* what is left of it */
} smelt_int8_layer;

SMELT_INLINE int32_t smelt_int8_byte(const void *at, int64_t i, int is_signed) {
  return at ? is_signed ? ((const int8_t *)at)[i] : ((const uint8_t *)at)[i] : 0;
}
SMELT_INLINE float smelt_int8_number(const void *at, int64_t i, int64_t many) { return at ? ((const float *)at)[many > 1 ? i : 0] : 1; }

/* Limits of quantized values less their zero point: those of the type, and of the numbers before they were quantized, which a negative
 * scale exchanges. */
static smelt_int8_range smelt_int8_range_of(int is_signed, int32_t zero, double low, double high, float scale) {
  const float whole = 12582912, type_low = is_signed ? -128 : 0, type_high = is_signed ? 127 : 255;
  smelt_int8_range out = {type_low - (float)zero, type_high - (float)zero, zero};
  const float quotients[2] = {(float)(scale < 0 ? high : low) / scale, (float)(scale < 0 ? low : high) / scale};
  const volatile float least = quotients[0] + whole, most = quotients[1] + whole; /* rounded half to even */
  if (quotients[0] > out.low) out.low = quotients[0] < out.high ? least - whole : out.high;
  if (quotients[1] < out.high) out.high = quotients[1] > out.low ? most - whole : out.low;
  return out;
}

/* What 16 columns have, whatever the width of vectors. */
typedef float smelt_int8_f16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t smelt_int8_i16 __attribute__((vector_size(64), aligned(4), may_alias));

/* Floats of 16 columns: one for all, or one for each of the `count` from `first` on; the last is repeated beyond them. */
SMELT_INLINE void smelt_int8_floats(const void *from, int64_t many, int64_t first, int64_t count, float *to) {
  const float *at = from;
  if (at && many == 1) {
    *(smelt_int8_f16 *)to = *at - (smelt_int8_f16){0};
    return;
  }
  if (at && count == SMELT_INT8_PANEL) {
    *(smelt_int8_f16 *)to = *(const smelt_int8_f16 *)(at + first);
    return;
  }
  for (int64_t j = 0; j < SMELT_INT8_PANEL; j++) to[j] = at ? at[many > 1 ? first + smelt_min(j, count - 1) : 0] : 1;
}

/* The bias of 16 columns: what is added to their sums, where an int32 bias has the scale of the products; an offset elsewhere. */
static int smelt_int8_bias(const smelt_int8_layer *l, int64_t first, int64_t count, const float *products, float y_scale, int32_t *added,
                           float *offset) {
  const smelt_task *t = l->task;
  const int64_t *s = l->s, many = s[SMELT_LS_BIASES];
  float scale[SMELT_INT8_PANEL];
  int any = 0;
  smelt_int8_floats(t->b[SMELT_LB_BIAS_SCALE], s[SMELT_LS_BIAS_SCALES], first, count, scale);
  if (t->b[SMELT_LB_BIAS_SCALE] && many > 1 && count == SMELT_INT8_PANEL) { /* all as they usually are */
    const smelt_int8_f16 wanted = *(const smelt_int8_f16 *)products, apart = wanted - *(const smelt_int8_f16 *)scale;
    const smelt_int8_i16 other = (apart > wanted * 5e-7f) | (-apart > wanted * 5e-7f);
    int32_t all = 0;
    for (int j = 0; j < SMELT_INT8_PANEL; j++) all |= other[j];
    if (!all) {
      *(smelt_int8_i16 *)added += *(const smelt_int8_i16 *)((const int32_t *)t->b[SMELT_LB_BIAS] + first);
      *(smelt_int8_f16 *)offset = (smelt_int8_f16){0};
      return 0;
    }
  }
  for (int64_t j = 0; j < SMELT_INT8_PANEL; j++) {
    const int64_t at = many > 1 ? first + smelt_min(j, count - 1) : 0;
    const float apart = products[j] - scale[j], size = __builtin_fabsf(products[j]) * 5e-7f;
    offset[j] = 0;
    if (!s[SMELT_LS_BIAS_SCALES]) added[j] = (int32_t)((uint32_t)added[j] + (uint32_t)((const int32_t *)t->b[SMELT_LB_BIAS])[at]);
    else if (!t->b[SMELT_LB_BIAS_SCALE]) offset[j] = ((const float *)t->b[SMELT_LB_BIAS])[at] / y_scale;
    else if (apart <= size && -apart <= size) added[j] = (int32_t)((uint32_t)added[j] + (uint32_t)((const int32_t *)t->b[SMELT_LB_BIAS])[at]);
    else offset[j] = (float)((const int32_t *)t->b[SMELT_LB_BIAS])[at] * scale[j] / y_scale;
    any |= offset[j] != 0;
  }
  return any;
}

/* Zero points of the weights of 16 columns, as they are packed. */
SMELT_INLINE int smelt_int8_weight_zeros(const smelt_int8_layer *l, int64_t first, int64_t count, int32_t *to) {
  const void *zeros = l->task->b[SMELT_LB_W_ZERO];
  const int is_signed = (int)l->s[SMELT_LS_W_SIGNED];
  int any = 0;
  uint64_t both[2] = {1, 1};
  if (l->s[SMELT_LS_W_ZEROS] <= 1) {
    const int32_t one = smelt_int8_byte(zeros, 0, is_signed) - (is_signed ? 0 : 128);
    *(smelt_int8_i16 *)to = one - (smelt_int8_i16){0};
    return one != 0;
  }
  if (zeros && is_signed && count == SMELT_INT8_PANEL) __builtin_memcpy(both, (const char *)zeros + first, 16);
  if (!(both[0] | both[1]) || (is_signed && !zeros)) {
    *(smelt_int8_i16 *)to = (smelt_int8_i16){0};
    return 0;
  }
  for (int64_t j = 0; j < SMELT_INT8_PANEL; j++) {
    to[j] = smelt_int8_byte(zeros, first + smelt_min(j, count - 1), is_signed) - (is_signed ? 0 : 128), any |= to[j] != 0;
  }
  return any;
}

/* Whether numbers of all columns stay below 2^30, and sums with a residual do. */
static int smelt_int8_fits(const smelt_int8_stage *s, int64_t count) {
  int32_t beyond = 0;
  for (int64_t j = 0; j < count; j++) beyond |= !(__builtin_fabsf(s->scale[j]) <= 0.25f);
  for (int64_t j = 0; s->offset && j < count; j++) beyond |= !(__builtin_fabsf(s->offset[j]) <= 0x1p28f);
  for (int64_t j = 0; s->shift && j < count; j++) beyond |= !(__builtin_fabsf(s->shift[j]) <= s->second_scale * 0x1p28f);
  if (s->shift) beyond |= s->second_inverse == 0 || !(__builtin_fabsf(s->first_scale) * 512 <= s->second_scale * 0x1p28f);
  if (s->residual) beyond |= s->inverse == 0 || !((__builtin_fabsf(s->own_scale) + __builtin_fabsf(s->residual_scale)) * 512 <= s->sum_scale * 0x1p28f);
  return !beyond;
}

/* What bytes are made with. */
static void smelt_int8_words_of(smelt_int8_stage *s) {
  const smelt_int8_range *to = s->residual ? &s->sum : s->shift ? &s->second : &s->range;
  const uint32_t low = (uint32_t)((int32_t)to->low + to->zero) & 255, high = (uint32_t)((int32_t)to->high + to->zero) & 255;
  s->words_zero = (int32_t)(((uint32_t)to->zero & 0xffff) * 0x00010001u);
  s->bytes_low = (int32_t)(low * 0x01010101u), s->bytes_high = (int32_t)(high * 0x01010101u);
  s->simple = to->zero == 0 && (s->kind == SMELT_Q_INT8 ? low == 128 && high == 127 : low == 0 && high == 255);
}

/* Scale, bias and zero point of each column; `bytes`: sums are of stored bytes, and miss the zero point of x. Columns are those
 * of all groups, each group in whole panels. */
static void smelt_int8_columns_of(smelt_int8_layer *l, const char *panels, int64_t stride, int bytes) {
  const smelt_task *t = l->task;
  const int64_t *s = l->s, columns = s[SMELT_LS_COLUMNS], count = s[SMELT_LS_GROUPS] * l->padded;
  int32_t *added = (int32_t *)l->scratch, *zeros = added + count;
  float *scale = (float *)(zeros + count), *offset = scale + count, *shift = offset + count;
  l->scratch = (char *)(shift + count);
  const uint32_t x_zero = bytes ? (uint32_t)(l->x_zero + (s[SMELT_LS_X_SIGNED] ? 128 : 0)) : 0;
  const float x_scale = smelt_int8_number(t->b[SMELT_LB_X_SCALE], 0, 1);
  const float y_scale = s[SMELT_LS_RESULT] >= SMELT_Q_UINT8 ? smelt_int8_number(t->b[SMELT_LB_Y_SCALE], 0, 1) : 1;
  int any_zero = 0, any_offset = 0;
  for (int64_t i = 0, own = 0, group = 0; i < count; i += SMELT_INT8_PANEL, own += SMELT_INT8_PANEL) {
    if (own == l->padded) own = 0, group++;
    const int64_t first = group * columns + smelt_min(own, columns - 1);
    const int64_t some = smelt_max(1, smelt_min(SMELT_INT8_PANEL, columns - own));
    const smelt_int8_header *header = (const smelt_int8_header *)(panels + i / SMELT_INT8_PANEL * stride);
    float products[SMELT_INT8_PANEL];
    smelt_int8_floats(t->b[SMELT_LB_W_SCALE], s[SMELT_LS_W_SCALES], first, some, products);
    *(smelt_int8_f16 *)products *= x_scale;
    *(smelt_int8_f16 *)(scale + i) = *(const smelt_int8_f16 *)products / y_scale;
    for (int j = 0; j < SMELT_INT8_PANEL; j++) /* 0 stays 0, whatever it is scaled by */
      scale[i + j] = scale[i + j] > 0x1.fffffep127f ? 0x1.fffffep127f : scale[i + j] < -0x1.fffffep127f ? -0x1.fffffep127f : scale[i + j];
    *(smelt_int8_i16 *)(added + i) = -(*(const smelt_int8_i16 *)header->sums * (int32_t)x_zero);
    any_zero |= smelt_int8_weight_zeros(l, first, some, zeros + i);
    if (t->b[SMELT_LB_BIAS]) any_offset |= smelt_int8_bias(l, first, some, products, y_scale, added + i, offset + i);
    if (!t->b[SMELT_LB_SHIFT]) continue;
    smelt_int8_floats(t->b[SMELT_LB_SHIFT], s[SMELT_LS_SHIFTS], first, some, shift + i);
  }
  if (t->b[SMELT_LB_SHIFT]) l->stage.shift = shift;
  l->stage.added = added, l->stage.scale = scale;
  l->stage.zeros = any_zero ? zeros : NULL, l->stage.offset = any_offset ? offset : NULL;
  l->stage.fits = s[SMELT_LS_RESULT] >= SMELT_Q_UINT8 && smelt_int8_fits(&l->stage, count);
  if (l->stage.fits) smelt_int8_words_of(&l->stage);
}

/* 0: too near to where products with it lose bits. */
static float smelt_int8_inverse(float scale) { return scale > 1e-20f && scale < 1e20f ? 1 / scale : 0; }

/* All but the columns. */
static smelt_int8_layer smelt_int8_layer_of(const smelt_task *t) {
  smelt_int8_layer l = {.task = t, .s = t->s, .scratch = t->b[SMELT_LB_SCRATCH]};
  const int64_t *s = t->s;
  const int kind = (int)s[SMELT_LS_RESULT], is_signed = kind == SMELT_Q_INT8;
  l.x_zero = smelt_int8_byte(t->b[SMELT_LB_X_ZERO], 0, (int)s[SMELT_LS_X_SIGNED]);
  l.panels = (s[SMELT_LS_COLUMNS] + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL, l.padded = l.panels * SMELT_INT8_PANEL;
  l.stage.kind = kind;
  l.stage.range.low = (float)t->f[SMELT_LF_LOW], l.stage.range.high = (float)t->f[SMELT_LF_HIGH];
  if (kind < SMELT_Q_UINT8) return l;
  const float y_scale = smelt_int8_number(t->b[SMELT_LB_Y_SCALE], 0, 1);
  l.stage.range = smelt_int8_range_of(is_signed, smelt_int8_byte(t->b[SMELT_LB_Y_ZERO], 0, is_signed), t->f[SMELT_LF_LOW],
                                      t->f[SMELT_LF_HIGH], y_scale);
  float own_scale = y_scale;
  if (t->b[SMELT_LB_SHIFT]) {
    own_scale = smelt_int8_number(t->b[SMELT_LB_SECOND_SCALE], 0, 1);
    l.stage.second = smelt_int8_range_of(is_signed, smelt_int8_byte(t->b[SMELT_LB_SECOND_ZERO], 0, is_signed), -__builtin_inff(),
                                         __builtin_inff(), own_scale);
    l.stage.first_scale = y_scale, l.stage.second_scale = own_scale, l.stage.second_inverse = smelt_int8_inverse(own_scale);
  }
  l.stage.residual = t->b[SMELT_LB_R];
  if (!l.stage.residual) return l;
  const float z_scale = smelt_int8_number(t->b[SMELT_LB_Z_SCALE], 0, 1);
  l.stage.residual_signed = (int)s[SMELT_LS_R_SIGNED];
  l.stage.residual_zero = smelt_int8_byte(t->b[SMELT_LB_R_ZERO], 0, l.stage.residual_signed);
  l.stage.own_scale = own_scale, l.stage.residual_scale = smelt_int8_number(t->b[SMELT_LB_R_SCALE], 0, 1), l.stage.sum_scale = z_scale;
  l.stage.inverse = smelt_int8_inverse(z_scale);
  l.stage.sum = smelt_int8_range_of(is_signed, smelt_int8_byte(t->b[SMELT_LB_Z_ZERO], 0, is_signed), t->f[SMELT_LF_SUM_LOW],
                                    t->f[SMELT_LF_SUM_HIGH], z_scale);
  return l;
}

/* Whether the tiles over rows in place are to be used. */
static __attribute__((unused)) int smelt_int8_in_place(void) {
#ifdef SMELT_INT8_VNNI
  return smelt_has(SMELT_INT8_VNNI_CPU);
#else
  return 0;
#endif
}

#endif
