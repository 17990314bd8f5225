/* Which CPU level this process may use.
 *
 * Input:     the CPU's own identification, what the operating system saves on a context switch, and SMELT_LEVEL in the
 *            environment, which can only lower the answer.
 * Output:    a level number of kernel.h, SMELT_CPU_TOO_OLD, or SMELT_CPU_BAD_NAME.
 * Invariant: a returned level never holds an instruction that this CPU or its operating system lacks.
 */
#ifndef SMELT_CPU_H
#define SMELT_CPU_H

#include <smelt/base/kernel.h>

enum { SMELT_CPU_TOO_OLD = -1, SMELT_CPU_BAD_NAME = -2 };

#if defined(__aarch64__)
#define SMELT_BASELINE "armv8-a"
static const char *const smelt_level_names[SMELT_LEVELS] = {"armv8", "armv82", NULL};
#else
#define SMELT_BASELINE "x86-64-v2"
static const char *const smelt_level_names[SMELT_LEVELS] = {"v2", "v3", "v4"};
#endif

char *getenv(const char *);

#if defined(__aarch64__)
unsigned long getauxval(unsigned long);

/* armv8.2-a+fp16 as compilers understand it: crc32, atomics, half precision (scalar and vector), rounding multiply. */
static int32_t smelt_cpu_detect(void) {
  const unsigned long at_hwcap = 16;
  const unsigned long need = 1ul << 7 | 1ul << 8 | 1ul << 9 | 1ul << 10 | 1ul << 12;
  return (getauxval(at_hwcap) & need) == need ? SMELT_LEVEL_armv82 : SMELT_LEVEL_armv8;
}

#elif defined(__x86_64__)
typedef struct {
  uint32_t a, b, c, d;
} smelt_cpuid_regs;

static smelt_cpuid_regs smelt_cpuid(uint32_t leaf, uint32_t sub) {
  smelt_cpuid_regs r;
  __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
  return r;
}

static uint64_t smelt_xcr0(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}

#define SMELT_HAS(word, mask) (((word) & (mask)) == (mask))

static int32_t smelt_cpu_detect(void) {
  const uint32_t v2_c = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23; /* sse3 ssse3 cx16 sse4.1/2 popcnt */
  const uint32_t v3_c = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;          /* fma movbe osxsave avx f16c */
  const uint32_t v3_b = 1u << 3 | 1u << 5 | 1u << 8;                                   /* bmi1 avx2 bmi2 */
  const uint32_t v4_b = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;          /* avx512 f dq cd bw vl */
  const uint64_t ymm = 0x6, zmm = 0xe6;                                                /* states the OS must save */
  uint32_t top = smelt_cpuid(0, 0).a, top_ext = smelt_cpuid(0x80000000u, 0).a;
  uint32_t c1 = smelt_cpuid(1, 0).c;
  uint32_t b7 = top >= 7 ? smelt_cpuid(7, 0).b : 0;
  uint32_t c_ext = top_ext >= 0x80000001u ? smelt_cpuid(0x80000001u, 0).c : 0;
  if (!SMELT_HAS(c1, v2_c) || !SMELT_HAS(c_ext, 1u)) return SMELT_CPU_TOO_OLD;                    /* ext bit 0: lahf */
  if (!SMELT_HAS(c1, v3_c) || !SMELT_HAS(b7, v3_b) || !SMELT_HAS(c_ext, 1u << 5)) return SMELT_LEVEL_v2; /* 5: lzcnt */
  uint64_t saved = smelt_xcr0();
  if (!SMELT_HAS(saved, ymm)) return SMELT_LEVEL_v2;
  return SMELT_HAS(b7, v4_b) && SMELT_HAS(saved, zmm) ? SMELT_LEVEL_v4 : SMELT_LEVEL_v3;
}
#endif

static int smelt_same_text(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

static int32_t smelt_cpu_level(void) {
  int32_t level = smelt_cpu_detect();
  const char *level_name = getenv("SMELT_LEVEL");
  if (level < 0 || !level_name || !*level_name) return level;
  for (int32_t i = 0; i < SMELT_LEVELS && smelt_level_names[i]; i++)
    if (smelt_same_text(level_name, smelt_level_names[i])) return i < level ? i : level;
  return SMELT_CPU_BAD_NAME;
}

/* The best function of an entry for this level; NULL when nothing was built that this CPU can run. */
static smelt_region smelt_pick(const smelt_entry *entry, int32_t level) {
  for (; level >= 0; level--)
    if (entry->by_level[level]) return entry->by_level[level];
  return NULL;
}

#endif
