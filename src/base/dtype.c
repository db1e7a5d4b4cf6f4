/*
 * dtype.c -- names and sizes of element types
 */
#include "tandem/types.h"

#include <string.h>

static const char *const names[TD_N_DTYPE] = { "none",
#define NAME(name, text, bytes, st) text,
                                               TD_DTYPE_LIST(NAME)
#undef NAME
};

static const size_t sizes[TD_N_DTYPE] = { 0,
#define SIZE(name, text, bytes, st) bytes,
                                          TD_DTYPE_LIST(SIZE)
#undef SIZE
};

const char *td_dtype_name(td_dtype d)
{
    return (unsigned)d < TD_N_DTYPE ? names[d] : "none";
}

size_t td_dtype_bytes(td_dtype d)
{
    return (unsigned)d < TD_N_DTYPE ? sizes[d] : 0;
}

td_dtype td_dtype_parse(const char *name)
{
    for (int d = 1; d < TD_N_DTYPE; d++)
        if (strcmp(name, names[d]) == 0)
            return (td_dtype)d;
    return TD_DT_NONE;
}
