#include "glue_toy_table.h"
#include <smelt/ort/ort_abi.h>
#ifdef TOY_OLD_SHAPES /* take the path of releases that cannot lend a shape */
#undef ORT_ABI_VERSION_SHAPE_BY_REF
#define ORT_ABI_VERSION_SHAPE_BY_REF 1000
#endif
#ifndef TOY_DOMAIN
#define TOY_DOMAIN "smelt.toy"
#endif
#define SMELT_DOMAIN TOY_DOMAIN
#include <smelt/ort/ort_glue.h>
