/*
 * ref_mixup.c -- mixup and cutmix: samples blended with, or cut into, other samples
 */
#include "backend/ref/ref.h"

static void mixup(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t rows = t->dim[0], width = rows ? td_type_count(t) / rows : 0;
    const double *x = a[0], *lambda = a[1];
    const int64_t *partner = a[2];
    double *y = a[3];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t p = partner[i] >= 0 && partner[i] < rows ? partner[i] : i;
        for (int64_t k = 0; k < width; k++)
            y[i * width + k] = lambda[i] * x[i * width + k] + (1 - lambda[i]) * x[p * width + k];
    }
}

const td_ref_kernel td_ref_mixup = TD_REF(mixup, mixup);

/* --- cutmix(x, box, partner) -> y ------------------------------------------------------------- */

static void cutmix(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t rows = t->dim[0], channels = t->dim[1], height = t->dim[2], width = t->dim[3];
    const double *x = a[0];
    const int64_t *box = a[1], *partner = a[2];
    double *y = a[3];
    for (int64_t i = 0; i < rows; i++, box += 4) {
        const int64_t p = partner[i] >= 0 && partner[i] < rows ? partner[i] : i;
        for (int64_t k = 0; k < channels * height * width; k++) {
            const int64_t v = k / width % height, u = k % width;
            const bool is_in = u >= box[0] && u < box[2] && v >= box[1] && v < box[3];
            y[i * channels * height * width + k] =
                x[(is_in ? p : i) * channels * height * width + k];
        }
    }
}

const td_ref_kernel td_ref_cutmix = TD_REF(cutmix, cutmix);
