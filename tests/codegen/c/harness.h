/* A table of array functions behind one signature, callable from Python in two ways: as a shared library through
 * `harness_call`, or as a program (-DHARNESS_MAIN, for another CPU under an emulator) that answers requests on stdin. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*array_function)(const void *a, const void *b, void *out, int64_t n);
typedef struct { const char *name; array_function call; } table_row;
static const table_row *harness_table(int *count);

__attribute__((visibility("default"))) int harness_call(const char *name, const void *a, const void *b, void *out, int64_t n) {
  int count;
  const table_row *rows = harness_table(&count);
  for (int i = 0; i < count; i++) {
    if (strcmp(rows[i].name, name) == 0) {
      rows[i].call(a, b, out, n);
      return 0;
    }
  }
  return 1;
}

#ifdef HARNESS_MAIN
typedef struct { char name[64]; int64_t n, a_bytes, b_bytes, out_bytes; } request;
static void *read_block(int64_t bytes) {
  void *block = calloc(1, (size_t)bytes + 64);
  if (bytes && fread(block, 1, (size_t)bytes, stdin) != (size_t)bytes) exit(2);
  return block;
}
int main(void) {
  request asked;
  while (fread(&asked, sizeof asked, 1, stdin) == 1) {
    void *a = read_block(asked.a_bytes), *b = read_block(asked.b_bytes);
    void *out = calloc(1, (size_t)asked.out_bytes + 64);
    if (harness_call(asked.name, a, b, out, asked.n)) exit(3);
    fwrite(out, 1, (size_t)asked.out_bytes, stdout);
    fflush(stdout);
    free(a);
    free(b);
    free(out);
  }
  return 0;
}
#endif

#endif
