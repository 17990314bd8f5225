/* The entries of glue_toy.c, for a glue unit or a host unit. */
#include <smelt/base/kernel.h>

#if defined(__aarch64__)
#define EACH(name) SMELT_AT(name, armv8), SMELT_AT(name, armv82), NULL
#define DECLARE(name) int32_t SMELT_AT(name, armv8)(smelt_env *), SMELT_AT(name, armv82)(smelt_env *)
#else
#define EACH(name) SMELT_AT(name, v2), SMELT_AT(name, v3), SMELT_AT(name, v4)
#define DECLARE(name) \
  int32_t SMELT_AT(name, v2)(smelt_env *), SMELT_AT(name, v3)(smelt_env *), SMELT_AT(name, v4)(smelt_env *)
#endif

DECLARE(toy_add);
DECLARE(toy_optional);
DECLARE(toy_many);
DECLARE(toy_gather);
DECLARE(toy_scratch);
DECLARE(toy_level);
DECLARE(toy_zeros);

#define TEN(x) x, x, x, x, x, x, x, x, x, x
static const int32_t floats[100] = {TEN(TEN(1))};
static const int32_t uint8[1] = {2}, int32[1] = {6}, int64[1] = {7}, float_int64[2] = {1, 7};
static const uint8_t second_may_be_absent[2] = {0, 1};

static const smelt_entry smelt_entries[] = {
    {"add", 2, 1, floats, floats, {EACH(toy_add)}, NULL},
    {"optional", 2, 1, floats, floats, {EACH(toy_optional)}, second_may_be_absent},
    {"many", 100, 100, floats, floats, {EACH(toy_many)}, NULL},
    {"gather", 2, 1, float_int64, floats, {EACH(toy_gather)}, NULL},
    {"scratch", 1, 1, int64, int64, {EACH(toy_scratch)}, NULL},
    {"level", 0, 1, int64, int32, {EACH(toy_level)}, NULL},
    {"zeros", 1, 1, int64, uint8, {EACH(toy_zeros)}, NULL},
};
