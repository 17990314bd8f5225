/* The product of nbits_unit.h. */
#define SMELT_LEVEL probe
#define SMELT_NBITS_ALONE
#include <smelt/nbits/nbits_unit.h>

#include "function_probe.h"

PROBE(probe_nbits, smelt_nbits_product)
