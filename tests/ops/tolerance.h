/*
 * tolerance.h -- how far a kernel may be from the reference, per op and dtype
 *
 * The measure is the largest difference of a tensor over its largest entry.  The first row that
 * fits counts. The reference computes in float64 and rounds once, so a row is what the other
 * kernel's arithmetic costs.
 */
#ifndef TD_TEST_TOLERANCE_H
#define TD_TEST_TOLERANCE_H

#include "base/text.h"
#include "tandem/types.h"

typedef struct {
    const char *op; /* pattern */
    td_dtype dtype; /* TD_DT_NONE: any */
    double limit;
    const char *reason;
} td_tolerance_row;

/* clang-format off */
static const td_tolerance_row td_tolerance_rows[] = {
    { "max_pool2d_grad",  TD_DT_F32,  1e-6, "9 windows meet in a pixel: 9 roundings of 6e-8" },
    { "max_pool2d",       TD_DT_NONE, 0,    "copies" },
    { "relu*",            TD_DT_NONE, 0,    "copies" },
    { "concat",           TD_DT_NONE, 0,    "copies" },
    { "slice*",           TD_DT_NONE, 0,    "copies" },
    { "reshape",          TD_DT_NONE, 0,    "copies" },
    { "transpose",        TD_DT_NONE, 0,    "copies" },
    { "broadcast_to",     TD_DT_NONE, 0,    "copies" },
    { "reorder",          TD_DT_NONE, 0,    "copies, or one rounding to nearest even" },
    { "assign",           TD_DT_NONE, 0,    "as reorder" },
    { "cast",             TD_DT_NONE, 0,    "one rounding, and all round to nearest even" },
    { "conv2d_int8",      TD_DT_U8,   0.01, "one step of 255: a tie in double is none in float32" },
    { "conv2d_int8",      TD_DT_S8,   0.01, "one step of 127" },
    { "conv2d_pool_int8", TD_DT_U8,   0.02, "one step; x widened, not rounded to bf16" },
    { "conv2d_statistics", TD_DT_F32, 5e-3, "sums of halves: as one rounding to 8 bits" },
    { "conv2d*",          TD_DT_F32,  1e-5, "sums of up to 1e5 products: 6e-8 sqrt(1e5) / 2" },
    { "matmul",           TD_DT_F32,  1e-5, "as conv2d" },
    { "attention",        TD_DT_F32,  1e-5, "as softmax, of sums" },
    { "inverted_residual", TD_DT_F32, 5e-6, "sums of up to 1e4 products, three in a row" },
    { "expand_depthwise", TD_DT_F32,  5e-6, "as inverted_residual" },
    { "layer_norm_grad",  TD_DT_F32,  2e-5, "as batch_norm" },
    { "layer_norm",       TD_DT_F32,  1.5e-5, "as batch_norm" },
    { "linear*",          TD_DT_F32,  1e-5, "as conv2d" },
    { "batch_norm*_grad", TD_DT_F32,  2e-5, "float32 sums over N H W that cancel" },
    { "batch_norm*",      TD_DT_F32,  2.5e-5, "widened halves: a mean's terms share one error" },
    { "sigmoid*",         TD_DT_F32,  2e-6, "an exponential good to a few last places" },
    { "softmax*",         TD_DT_F32,  1e-5, "exponentials of sums" },
    { "*pool*",           TD_DT_F32,  2e-6, "sums of one plane in float32, in several lanes" },
    { "mul_reduce",       TD_DT_F32,  5e-6, "sums of one plane in float32, in several lanes" },
    { "sum*",             TD_DT_F32,  1e-5, "sums of all elements in float32" },
    { "mean",             TD_DT_F32,  1e-5, "sums of all elements in float32" },
    { "sigmoid_focal*",   TD_DT_F32,  2e-6, "as sigmoid" },
    { "multibox*",        TD_DT_F32,  2e-6, "exponentials, and logarithms of their sums" },
    { "*",                TD_DT_F32,  5e-7, "a few roundings of 6e-8 each" },
    { "*",                TD_DT_BF16, 8e-3, "results rounded to 8 bits: 2 units of 2^-8" },
    { "*",                TD_DT_F16,  1e-3, "results rounded to 11 bits: 2 units of 2^-11" },
    { "*",                TD_DT_F64,  1e-12, "long sums in another order" },
    { "*",                TD_DT_NONE, 0,    "integers" },
};
/* clang-format on */

static inline double td_tolerance(const char *op, td_dtype dtype)
{
    const td_tolerance_row *r = td_tolerance_rows;
    while (!td_text_glob(r->op, op) || (r->dtype != dtype && r->dtype != TD_DT_NONE))
        r++;
    return r->limit;
}

/* A GPU truncates factors to TF32, the reference rounds: a unit of 2^-10 each, less in sums. */
#define TD_TF32_TOLERANCE 1e-3

/* Central differences in float64, step 1e-5: truncation 1e-10, cancellation 1e-11 of the sum. */
#define TD_GRADIENT_TOLERANCE 1e-6

#endif
