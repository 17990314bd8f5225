/* Turns a failed call into a sentence.
 *
 * Input:     a smelt_env whose region failed, and the region's entry.
 * Output:    NUL-terminated text in the caller's buffer, cut where the buffer ends.
 * Invariant: no libc, no allocation, nothing written past the buffer.
 */
#ifndef SMELT_MESSAGE_H
#define SMELT_MESSAGE_H

#include <smelt/base/kernel.h>

#define SMELT_MESSAGE_BYTES 640
#define SMELT_MESSAGE_MAX_RANK 16

typedef struct {
  char text[SMELT_MESSAGE_BYTES];
  size_t used;
} smelt_message;

static void smelt_say(smelt_message *m, const char *text) {
  while (*text && m->used + 1 < sizeof m->text) m->text[m->used++] = *text++;
  m->text[m->used] = 0;
}

static void smelt_say_int(smelt_message *m, int64_t value) {
  char digits[24];
  size_t at = sizeof digits;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  digits[--at] = 0;
  do digits[--at] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) digits[--at] = '-';
  smelt_say(m, digits + at);
}

static void smelt_say_shape(smelt_message *m, int32_t rank, const int64_t *dims) {
  smelt_say(m, "[");
  for (int32_t i = 0; i < rank && i < SMELT_MESSAGE_MAX_RANK; i++) {
    if (i) smelt_say(m, ",");
    smelt_say_int(m, dims[i]);
  }
  smelt_say(m, rank > SMELT_MESSAGE_MAX_RANK ? ",...]" : "]");
}

static void smelt_say_detail(smelt_message *m, const smelt_env *env, int32_t code) {
  const int64_t *d = env->detail;
  switch (code) {
    case SMELT_E_SHAPE:
      if (d[0] < 0) {
        smelt_say(m, "the shapes of the inputs do not fit each other");
        break;
      }
      smelt_say(m, "axis "), smelt_say_int(m, d[0]);
      smelt_say(m, " has size "), smelt_say_int(m, d[1]);
      smelt_say(m, ", expected "), smelt_say_int(m, d[2]);
      break;
    case SMELT_E_RANK:
      smelt_say(m, "rank "), smelt_say_int(m, d[0]);
      smelt_say(m, ", expected "), smelt_say_int(m, d[1]);
      break;
    case SMELT_E_INDEX:
      smelt_say(m, "index "), smelt_say_int(m, d[0]);
      smelt_say(m, " out of range for an axis of size "), smelt_say_int(m, d[1]);
      break;
    case SMELT_E_OVERFLOW: smelt_say(m, "a size computed from the input shapes overflows 63 bits"); break;
    case SMELT_E_MEMORY:
      smelt_say(m, "out of memory");
      if (d[0] > 0) smelt_say(m, " asking for "), smelt_say_int(m, d[0]), smelt_say(m, " bytes");
      break;
    case SMELT_E_VALUE: smelt_say(m, "value "), smelt_say_int(m, d[0]), smelt_say(m, " is not allowed here"); break;
    case SMELT_E_DIVISION: smelt_say(m, "integer division by zero"); break;
    case SMELT_E_DEVICE:
      smelt_say(m, env->what), smelt_say(m, *env->which ? ", kernel " : ""), smelt_say(m, env->which);
      smelt_say(m, ": "), smelt_say(m, env->said);
      break;
    default: smelt_say(m, "failed with code "), smelt_say_int(m, code); break;
  }
}

/* "smelt region r3: input 1 has shape [2,7]: axis 1 has size 7, expected 5" */
static __attribute__((noinline)) void smelt_explain(smelt_message *m, const smelt_entry *entry, const smelt_env *env,
                                                    int32_t code) {
  int32_t input = env->detail_input;
  m->used = 0;
  smelt_say(m, "smelt region "), smelt_say(m, entry->name), smelt_say(m, ": ");
  if (env->code && input >= 0 && input < entry->n_in) {
    smelt_say(m, "input "), smelt_say_int(m, input);
    smelt_say(m, " has shape "), smelt_say_shape(m, env->in_rank[input], env->in_dims[input]);
    smelt_say(m, ": ");
  }
  smelt_say_detail(m, env, code);
}

#endif
