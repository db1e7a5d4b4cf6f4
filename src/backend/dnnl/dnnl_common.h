/*
 * backend/dnnl/dnnl_common.h -- converts between Tandem's types and oneDNN's, and runs primitives
 *
 * The process has one engine and one stream.  Primitives are created in prepare, with a scratchpad
 * placed by the planner; run only sets pointers.
 */
#ifndef TD_DNNL_COMMON_H
#define TD_DNNL_COMMON_H

#include "backend/dnnl/dnnl_guard.h"
#include "runtime/kernel.h"

#define DNNL_TRY(expr)                                                                             \
    do {                                                                                           \
        dnnl_status_t ds_ = (expr);                                                                \
        if (ds_ != dnnl_success)                                                                   \
            return td_dnnl_failed(ds_, #expr);                                                     \
    } while (0)

td_status td_dnnl_failed(dnnl_status_t ds, const char *what);

td_status td_dnnl_engine(dnnl_engine_t *engine, dnnl_stream_t *stream) TD_CHECKED;

/** False: oneDNN does not support the type. */
bool td_dnnl_dtype(td_dtype d, dnnl_data_type_t *out);

/**
 * Memory descriptor of a type; the caller destroys it.  groups > 1: a filter [K, C/G, R, S] becomes
 * [G, K/G, C/G, R, S].  any: oneDNN chooses the layout.
 */
td_status td_dnnl_md(const td_type *t, int groups, bool any, dnnl_memory_desc_t *out) TD_CHECKED;

/** A 2-D descriptor, transposed: the memory of [A, B] as [B, A].  any: as for td_dnnl_md. */
td_status td_dnnl_md_transposed(const td_type *t, bool any, dnnl_memory_desc_t *out) TD_CHECKED;

/** The layout's name in our notation; false if our notation cannot express it. */
bool td_dnnl_layout(const_dnnl_memory_desc_t md, int groups, char out[TD_LAYOUT_BYTES]);

/** The same for a descriptor of td_dnnl_md_transposed. */
bool td_dnnl_layout_transposed(const_dnnl_memory_desc_t md, char out[TD_LAYOUT_BYTES]);

#define TD_DNNL_ARGS_MAX 8

/* A primitive with the memory objects of its arguments. */
typedef struct {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[TD_DNNL_ARGS_MAX];
    int from[TD_DNNL_ARGS_MAX]; /* index into the kernel's args; -1: memory that stays */
    int n_args;
} td_dnnl_call;

/**
 * How to get one argument of a primitive: which exec argument, which query, which kernel argument.
 */
typedef struct {
    int arg;           /* DNNL_ARG_SRC ... */
    dnnl_query_t what; /* dnnl_query_src_md ... */
    int query_index;
    int from; /* kernel argument */
} td_dnnl_bind;

/**
 * Create the primitive of `pd`, which is always destroyed, and set out->state, scratch_bytes and
 * impl.  The scratchpad is the last kernel argument.
 */
td_status td_dnnl_prepare(dnnl_primitive_desc_t pd, const td_node *n, int n_binds,
                          const td_dnnl_bind *binds, td_prepared *out) TD_CHECKED;
/**
 * Add argument `arg` of type `t` to a prepared primitive: kernel argument `from`, or, unless NULL,
 * `constant`, which must live as long as the primitive.
 */
td_status td_dnnl_add_arg(td_prepared *p, int arg, const td_type *t, int from,
                          void *constant) TD_CHECKED;
td_status td_dnnl_run(const td_prepared *p, void *const *args) TD_CHECKED;
void td_dnnl_release(td_prepared *p);

/** Attributes that select a scratchpad provided by the caller. */
td_status td_dnnl_attr(dnnl_primitive_attr_t *out) TD_CHECKED;

/** The activation of a td_conv_act; none for TD_CONV_LINEAR. */
td_status td_dnnl_append_act(dnnl_post_ops_t ops, int act) TD_CHECKED;

/** TD_ENOKERNEL if oneDNN would fall back to its reference code, or if `ds` is an error. */
td_status td_dnnl_check_primitive(dnnl_status_t ds, const dnnl_primitive_desc_t *pd) TD_CHECKED;

/** TD_ENOKERNEL if oneDNN has no kernel for n, a convolution or a gradient of one, with this batch
    size and number of output channels; 0 channels: all. */
td_status td_dnnl_conv_accepts(const td_node *n, int64_t images, int64_t channels) TD_CHECKED;

/** The same for one thread. */
td_status td_dnnl_conv_accepts_alone(const td_node *n, int64_t images, int64_t channels) TD_CHECKED;

/** Create the primitive for these; td_dnnl_run runs it with n's arguments. */
td_status td_dnnl_conv_prepare(const td_node *n, int64_t images, int64_t channels,
                               td_prepared *out) TD_CHECKED;

/** Bytes from one image to the next. */
int64_t td_dnnl_image_bytes(const td_type *t);

/** Are the values of an image contiguous? */
bool td_dnnl_is_cut_by_image(const td_type *t);

extern const td_kernel td_dnnl_conv, td_dnnl_conv_grad_x, td_dnnl_conv_grad_w,
    td_dnnl_conv_grad_w_parts, td_dnnl_conv_fused, td_dnnl_conv_slices, td_dnnl_conv_fused_slices,
    td_dnnl_conv_grad_x_slices, td_dnnl_linear, td_dnnl_linear_fused, td_dnnl_linear_grad_x,
    td_dnnl_linear_grad_w, td_dnnl_attention, td_dnnl_matmul, td_dnnl_reorder, td_dnnl_assign,
    td_dnnl_max_pool, td_dnnl_max_pool_grad, td_dnnl_avg_pool, td_dnnl_avg_pool_grad,
    td_dnnl_conv_int8;

bool td_dnnl_conv_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_dnnl_conv_int8_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_dnnl_linear_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_dnnl_conv_candidate_layout(const td_node *n, int k, td_node_layouts *out);

#endif
