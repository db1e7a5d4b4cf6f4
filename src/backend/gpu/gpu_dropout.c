/*
 * gpu_dropout.c -- dropout of elements in plain order, of samples in any order of a sample
 */
#include "backend/gpu/gpu.h"

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    const td_dropout_attr *a = n->attr;
    if (x->dtype != TD_DT_F32 && !td_dtype_is_half(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    if (n->n_in < 2)
        return td_error(TD_ENOKERNEL, "there are no random numbers");
    if (a->mode == TD_DROPOUT_ELEMENT || x->layout[0] != 'a')
        return td_gpu_check_plain(n);
    return td_type_padded_count(x) == td_type_count(x)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "layout %s has padding", x->layout);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, 0);
    const td_dropout_attr *a = n->attr;
    const td_dropout_rule rule = td_dropout_rule_of(n);
    const int64_t rows = x->dim[0];
    return td_gpu_status(
        td_gpu()->drop(&(td_gpu_drop){ .dtype = x->dtype,
                                       .rows = rows,
                                       .width = rows ? td_type_count(x) / rows : 0,
                                       .purpose = TD_RNG_DROPOUT,
                                       .id = (uint32_t)a->id,
                                       .least = rule.least,
                                       .scale = (float)rule.scale,
                                       .per_element = a->mode == TD_DROPOUT_ELEMENT,
                                       .per_batch = a->mode == TD_DROPOUT_BATCH,
                                       .x = args[0],
                                       .random = args[1],
                                       .y = args[2] }));
}

const td_kernel td_gpu_dropout = {
    .name = "cuda_dropout", .op = &td_op_dropout, .accepts = accepts, .run = run
};
