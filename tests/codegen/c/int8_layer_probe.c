/* The layers of int8_conv_unit.h and int8_depthwise_unit.h. */
#define SMELT_LEVEL probe
#include <smelt/int8/int8_conv_unit.h>
#include <smelt/int8/int8_depthwise_unit.h>

#include "function_probe.h"

PROBE(probe_conv, smelt_int8_conv)
PROBE(probe_depthwise, smelt_int8_depthwise)
