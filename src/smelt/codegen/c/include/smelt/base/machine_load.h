/* How a library learns what machine it runs on; see machine.h.
 *
 * Input:     the operating system and the CPU. Output: smelt_machine_load(), which a host calls once, before any region runs.
 * Invariant: what cannot be read keeps its default; SMELT_MACHINE that cannot be understood is an error, and nothing is changed.
 */
#ifndef SMELT_MACHINE_LOAD_H
#define SMELT_MACHINE_LOAD_H

#include <smelt/base/machine.h>
#include <smelt/threads/threads.h>

char *getenv(const char *);

#if defined(__x86_64__)
/* Leaf 4 of Intel's CPUs and 0x8000001d of AMD's describe one cache each, in the same words. */
static void smelt_machine_caches(smelt_machine *m) {
  uint32_t a, b, c, d;
#define SMELT_CPUID(leaf, sub) __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(sub))
  SMELT_CPUID(0, 0);
  const int amd = c == 0x444d4163 || c == 0x656e6975; /* AuthenticAMD, HygonGenuine */
  const uint32_t top = a;
  SMELT_CPUID(0x80000000u, 0);
  const uint32_t leaf = amd ? 0x8000001du : 4;
  if (amd ? a < leaf : top < leaf) return;
  for (uint32_t i = 0; i < 8; i++) {
    SMELT_CPUID(leaf, i);
    const uint32_t kind = a & 31, level = a >> 5 & 7; /* 0: no more, 1: data, 2: instructions, 3: both */
    if (!kind) return;
    const int64_t bytes = (int64_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * ((int64_t)c + 1);
    if (kind == 2) continue;
    if (level == 1) m->l1_bytes = bytes;
    if (level == 2) m->l2_bytes = bytes;
    if (level == 3) m->l3_bytes = bytes;
  }
#undef SMELT_CPUID
}
#elif defined(__linux__)
int open(const char *, int, ...);
long read(int, void *, size_t);
int close(int);

/* A small file of sysfs: its number, with K and M as they are written there; its first letter where it has none. */
static int64_t smelt_machine_number(char *path, const char *name) {
  char text[32];
  char *end = path;
  while (*end) end++;
  for (int i = 0;; i++) {
    end[i] = name[i];
    if (!name[i]) break;
  }
  const int file = open(path, 0);
  *end = 0;
  if (file < 0) return -1;
  const long count = read(file, text, sizeof text - 1);
  close(file);
  if (count <= 0) return -1;
  text[count] = 0;
  if (text[0] < '0' || text[0] > '9') return text[0];
  int64_t out = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++) out = out * 10 + *at - '0';
  return *at == 'K' ? out << 10 : *at == 'M' ? out << 20 : out;
}

static void smelt_machine_caches(smelt_machine *m) {
  char path[80] = "/sys/devices/system/cpu/cpu0/cache/index0/";
  for (char i = '0'; i < '8'; i++) {
    path[sizeof "/sys/devices/system/cpu/cpu0/cache/index0/" - 3] = i;
    const int64_t level = smelt_machine_number(path, "level"), kind = smelt_machine_number(path, "type");
    const int64_t bytes = smelt_machine_number(path, "size");
    if (level < 0 || bytes <= 0 || kind == 'I') continue;
    if (level == 1) m->l1_bytes = bytes;
    if (level == 2) m->l2_bytes = bytes;
    if (level == 3) m->l3_bytes = bytes;
  }
}
#else
static void smelt_machine_caches(smelt_machine *m) { (void)m; }
#endif

static int64_t smelt_machine_within(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

static int64_t smelt_machine_power(int64_t value) {
  while (value & (value - 1)) value &= value - 1;
  return value;
}

/* `name=number` of a list with commas; NULL where that is not what it says. */
static const char *smelt_machine_field(const char *text, smelt_machine *m) {
  static const char *const names[] = {"l1", "l2", "l3", "processors", "threads"};
  int64_t *const fields[] = {&m->l1_bytes, &m->l2_bytes, &m->l3_bytes, &m->processors, &m->threads};
  for (int i = 0; i < 5; i++) {
    const char *at = text, *name = names[i];
    while (*name && *at == *name) at++, name++;
    if (*name || *at++ != '=' || *at < '0' || *at > '9') continue;
    int64_t value = 0;
    for (; *at >= '0' && *at <= '9' && value < (int64_t)1 << 50; at++) value = value * 10 + *at - '0';
    *fields[i] = value;
    return *at == ',' ? at + 1 : *at ? NULL : at;
  }
  return NULL;
}

static void smelt_machine_apply(const smelt_machine *m) {
  const int64_t l1_bytes = smelt_machine_power(smelt_machine_within(m->l1_bytes, 16 << 10, 128 << 10));
  const int64_t l2_bytes = smelt_machine_power(smelt_machine_within(m->l2_bytes, 256 << 10, 4 << 20));
  const int64_t threads = smelt_machine_within(m->threads, 1, SMELT_MOST_THREADS);
#define smelt_max(a, b) ((a) > (b) ? (a) : (b))
#define smelt_min(a, b) ((a) < (b) ? (a) : (b))
#define SMELT_SIZE(name, formula, what) smelt_sizes.name = formula;
#include <smelt/base/machine_sizes.h>
#undef SMELT_SIZE
#undef smelt_max
#undef smelt_min
  smelt_this_machine = *m;
  smelt_this_machine.threads = threads;
}

/* The part of SMELT_MACHINE that is not understood, or NULL. */
static const char *smelt_machine_load(void) {
  smelt_machine m = smelt_this_machine;
  smelt_machine_caches(&m);
  const int32_t found = smelt_processors();
  if (found > 0) m.processors = found;
  m.threads = m.processors;
  for (const char *at = getenv("SMELT_MACHINE"); at && *at;) {
    const char *next = smelt_machine_field(at, &m);
    if (!next) return at;
    at = next;
  }
  smelt_machine_apply(&m);
  return NULL;
}

#endif
