/*
 * ref_dropout.c -- dropout, element by element or sample by sample
 */
#include "backend/ref/ref.h"

static void dropout(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const td_dropout_attr *attr = n->attr;
    const td_dropout_rule rule = td_dropout_rule_of(n);
    const int64_t rows = t->dim[0], width = rows ? td_type_count(t) / rows : 0;
    const int64_t *random = n->n_in > 1 ? a[1] : NULL;
    const double *x = a[0];
    double *y = a[n->n_in];
    for (int64_t i = 0; i < rows; i++) {
        td_rng r = td_dropout_stream(attr, random, i);
        uint32_t draw = td_rng_u32(&r);
        for (int64_t e = 0; e < width; e++) {
            if (e > 0 && attr->mode == TD_DROPOUT_ELEMENT)
                draw = td_rng_u32(&r);
            y[i * width + e] = draw >= rule.least ? x[i * width + e] * rule.scale : 0;
        }
    }
}

const td_ref_kernel td_ref_dropout = TD_REF(dropout, dropout);
