/* The product of int8_unit.h. */
#define SMELT_LEVEL probe
#include <smelt/int8/int8_unit.h>

#include "function_probe.h"

PROBE(probe_int8, smelt_int8_product)
