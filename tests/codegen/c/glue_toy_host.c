#include "glue_toy_table.h"
#include <smelt/host/host.h>
