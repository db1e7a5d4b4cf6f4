/*
 * backend/native/conv/native_conv.h -- what the kernels of convolutions share
 *
 * A filter's gradient is a sum over images.  These are divided into parts, and a job is one unit of
 * channels of one part; no job waits for another, and the parts' sums are added in order.  The
 * number of parts depends on the shapes only, so the result has the same bits with any number of
 * threads.
 */
#ifndef TD_BACKEND_NATIVE_CONV_NATIVE_CONV_H
#define TD_BACKEND_NATIVE_CONV_NATIVE_CONV_H

#include "runtime/kernel.h"

/** Is it conv2d, conv2d_fused, conv2d_grad_x or conv2d_grad_w? */
bool td_native_is_conv(const td_node *n);

/* the types of x, w and y in whichever of them */
typedef struct {
    const td_type *x, *w, *y;
} td_native_conv_types;

td_native_conv_types td_native_conv_types_of(const td_node *n);

/** TD_ENOKERNEL: tf32, a residual, a gradient or a bias that is not float32. */
td_status td_native_conv_check(const td_node *n) TD_CHECKED;

/** The layouts of a node's operands and result: of x and y, and of w. */
void td_native_conv_layouts(const td_node *n, const char *image, const char *filter,
                            td_node_layouts *out);

/** TD_ENOKERNEL unless x and y have layout `image`, and w has `filter`. */
td_status td_native_conv_check_layouts(const td_node *n, const char *image,
                                       const char *filter) TD_CHECKED;

typedef struct {
    int64_t N, units;  /* images; units of channels, each with an equal share of dw */
    int64_t images, n; /* images in a part, the last may have fewer; parts */
} td_native_filter_parts;

/** `step`: the images of a part are a multiple of it. */
td_native_filter_parts td_native_filter_divide(int64_t N, int64_t units, int64_t step);

/** `each`: elements of one unit of one image. */
td_work_share td_native_filter_share(const td_native_filter_parts *p, int64_t each, int threads);

/** Scratch for the parts' sums; the first part's are the result itself. */
size_t td_native_filter_scratch(const td_native_filter_parts *p, const td_type *dw);

typedef struct {
    td_native_filter_parts parts;
    int64_t count; /* elements of dw */
    float *dw, *scratch;
    const void *context;
    /* adds the gradients of images [from, to) to `sums` of one unit */
    void (*add)(const void *context, int64_t from, int64_t to, int64_t unit, float *sums);
} td_native_filter_job;

void td_native_filter_run(const td_native_filter_job *j);

#endif
