/* Which build this process may use: the features of its CPU, and the best of the builds that need no others.
 *
 * Input:     the CPU's own identification, what the operating system saves on a context switch, and SMELT_LEVEL in the
 *            environment, the name of a build: features beyond those of that build are not used.
 * Output:    smelt_features; a level number of kernel.h, SMELT_CPU_TOO_OLD, or SMELT_CPU_BAD_NAME.
 * Invariant: a build that is chosen never holds an instruction that this CPU or its operating system lacks.
 */
#ifndef SMELT_CPU_H
#define SMELT_CPU_H

#include <smelt/base/features.h>
#include <smelt/base/kernel.h>

enum { SMELT_CPU_TOO_OLD = -1, SMELT_CPU_BAD_NAME = -2 };

char *getenv(const char *);

#if defined(__aarch64__)
#define SMELT_BASELINE "armv8-a"
unsigned long getauxval(unsigned long);

typedef struct {
  uint64_t hwcap, hwcap2;
} smelt_cpu_words;

static smelt_cpu_words smelt_cpu_read(void) { return (smelt_cpu_words){.hwcap = getauxval(16), .hwcap2 = getauxval(26)}; }

#elif defined(__x86_64__)
#define SMELT_BASELINE "x86-64-v2"
/* Registers of cpuid by leaf, the states that the operating system saves, and those that this process may use. */
typedef struct {
  uint64_t leaf1_c, leaf7_b, leaf7_c, leaf7_d, leaf7_1_a, ext_c, saved, allowed;
} smelt_cpu_words;

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

/* States that this process may use once it has asked for them, as ONNX Runtime does where there are tiles; asking is left to it. */
static uint64_t smelt_states_allowed(void) {
  uint64_t allowed = 0;
#if defined(__linux__)
  long code = 158; /* arch_prctl(ARCH_GET_XCOMP_PERM) */
  __asm__ volatile("syscall" : "+a"(code) : "D"(0x1022L), "S"(&allowed) : "rcx", "r11", "memory");
  if (code) return 0;
#endif
  return allowed;
}

static smelt_cpu_words smelt_cpu_read(void) {
  smelt_cpu_words w = {.leaf1_c = smelt_cpuid(1, 0).c};
  if (smelt_cpuid(0, 0).a >= 7) {
    const smelt_cpuid_regs seven = smelt_cpuid(7, 0);
    w.leaf7_b = seven.b, w.leaf7_c = seven.c, w.leaf7_d = seven.d;
    if (seven.a >= 1) w.leaf7_1_a = smelt_cpuid(7, 1).a;
  }
  if (smelt_cpuid(0x80000000u, 0).a >= 0x80000001u) w.ext_c = smelt_cpuid(0x80000001u, 0).c;
  if (w.leaf1_c >> 27 & 1) w.saved = smelt_xcr0(); /* OSXSAVE */
  if (w.saved >> 17 & 3) w.allowed = smelt_states_allowed(); /* tiles */
  return w;
}
#endif

typedef struct {
  uint32_t with;        /* features that it goes with */
  smelt_cpu_words need; /* bits that tell it */
} smelt_feature;

typedef struct {
  const char *name;
  int32_t level; /* -1: no regions of its own */
  uint32_t features;
} smelt_build;

#define SMELT_BUILD(name, level, features)
#define SMELT_FEATURE(name, with, ...) {with, {__VA_ARGS__}},
static const smelt_feature smelt_feature_list[] = {
#include <smelt/base/feature_list.h>
};
#undef SMELT_FEATURE
#undef SMELT_BUILD
#define SMELT_FEATURE(name, with, ...)
#define SMELT_BUILD(name, level, features) {#name, level, features},
static const smelt_build smelt_builds[] = {
#include <smelt/base/feature_list.h>
};
#undef SMELT_FEATURE
#undef SMELT_BUILD
#define SMELT_BUILDS ((int)(sizeof smelt_builds / sizeof *smelt_builds))

/* What these words tell: a feature is there with all that it goes with, or not at all. */
static uint32_t smelt_features_of(const smelt_cpu_words *words) {
  uint32_t found = 0;
  for (int i = 0; i < SMELT_FEATURES; i++) {
    const uint64_t *has = (const uint64_t *)words, *need = (const uint64_t *)&smelt_feature_list[i].need;
    int there = (found & smelt_feature_list[i].with) == smelt_feature_list[i].with;
    for (size_t w = 0; w < sizeof *words / sizeof *has; w++) there &= (has[w] & need[w]) == need[w];
    found |= (uint32_t)there << i;
  }
  return found;
}

/* These features and those that they go with. */
static uint32_t smelt_with_others(uint32_t features) {
  for (int i = SMELT_FEATURES - 1; i >= 0; i--)
    if (features >> i & 1) features |= smelt_feature_list[i].with;
  return features;
}

static int smelt_same_text(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

static const smelt_build *smelt_build_named(const char *name) {
  for (int i = 0; i < SMELT_BUILDS; i++)
    if (smelt_same_text(name, smelt_builds[i].name)) return &smelt_builds[i];
  return NULL;
}

/* The best build with regions that these features allow, among those whose level is in `levels`; NULL where there is none. */
static const smelt_build *smelt_best_build(uint32_t features, uint32_t levels) {
  for (int i = SMELT_BUILDS - 1; i >= 0; i--) {
    const smelt_build *build = &smelt_builds[i];
    if (build->level >= 0 && levels >> build->level & 1 && (features & build->features) == build->features) return build;
  }
  return NULL;
}

static int32_t smelt_cpu_level(void) {
  const smelt_cpu_words words = smelt_cpu_read();
  const char *name = getenv("SMELT_LEVEL");
  uint32_t features = smelt_features_of(&words);
  if (!smelt_best_build(features, ~0u)) return SMELT_CPU_TOO_OLD;
  if (name && *name) {
    const smelt_build *most = smelt_build_named(name);
    if (!most) return SMELT_CPU_BAD_NAME;
    features &= smelt_with_others(most->features);
  }
  smelt_features = features;
  return smelt_best_build(features, ~0u)->level;
}

/* The best function of an entry on this machine; NULL when nothing was built that this CPU can run. */
static __attribute__((unused)) smelt_region smelt_pick(const smelt_entry *entry) {
  uint32_t built = 0;
  for (int32_t level = 0; level < SMELT_LEVELS; level++) built |= (uint32_t)(entry->by_level[level] != NULL) << level;
  const smelt_build *build = smelt_best_build(smelt_features, built);
  return build ? entry->by_level[build->level] : NULL;
}

/* The build of that level, which has regions. */
static __attribute__((unused)) const char *smelt_level_name(int32_t level) {
  return smelt_best_build(~0u, 1u << level)->name;
}

#endif
