/* SHA-256 (FIPS 180-4).
 *
 * Input:     bytes, in any number of pieces. Output: 32 bytes, or 64 hexadecimal digits.
 * Invariant: the same digest with and without the CPU's own instructions, which are used where there are some.
 */
#ifndef SMELT_SHA256_H
#define SMELT_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX 65 /* with the final zero */

typedef struct {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
} sha256;

void sha256_start(sha256 *hash);
void sha256_add(sha256 *hash, const void *data, size_t bytes);
void sha256_finish(sha256 *hash, uint8_t digest[32]);
void sha256_hex(sha256 *hash, char hex[SHA256_HEX]);

#endif
