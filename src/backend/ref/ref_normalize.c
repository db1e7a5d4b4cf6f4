/*
 * ref_normalize.c -- bytes of images to normalised floats
 */
#include "backend/ref/ref.h"

static void normalize(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t channels = t->dim[3], area = t->dim[1] * t->dim[2];
    const uint8_t *x = a[0];
    double *y = a[1];
    td_normalize_values v;
    TD_CHECK(td_normalize_constants(n, &v) == TD_OK);
    for (int64_t i = 0; i < t->dim[0] * area; i++)
        for (int64_t c = 0; c < channels; c++)
            y[(i / area * channels + c) * area + i % area] =
                ((double)x[i * channels + c] - (double)v.mean[c]) / (double)v.std[c];
}

const td_ref_kernel td_ref_normalize = TD_REF(normalize, normalize);
