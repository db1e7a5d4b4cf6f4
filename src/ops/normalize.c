/*
 * normalize(x) {mean, std, to} -> y     y[n,c,h,w] = (x[n,h,w,c] - mean[c]) / std[c]
 *
 *   x    u8[N, H, W, C]        decoded images, C 1 .. 4
 *   y    [N, C, H, W]          of dtype `to`, a float, in the layout that the target prefers
 *
 * mean and std are lists of C numbers, on the scale of x: "123.675:116.28:103.53".  They are
 * rounded to float32, and kernels of float32 subtract and divide in float32, as loaders do.  No
 * gradient: it is applied to inputs only.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "ir/build.h"
#include "ops/ops.h"

static const char *const dtypes[] = { "f32", "f64", "bf16", "f16", NULL };

/* clang-format off */
static const td_field normalize_fields[] = {
    TD_TEXT(td_normalize_attr, mean, "", "X:X:..", "of each channel, joined by ':'"),
    TD_TEXT(td_normalize_attr, std, "", "X:X:..", "of each channel, joined by ':'"),
    TD_ENUM(td_normalize_attr, to, 0, dtypes, "dtype of the result"),
    TD_END,
};
/* clang-format on */

int td_normalize_to(td_dtype d)
{
    int i = 0;
    while (dtypes[i + 1] && td_dtype_parse(dtypes[i]) != d)
        i++;
    return i;
}

/* up to the next ':' or the end; NULL: no number */
static const char *parse_number(const char *s, float *out)
{
    char word[32];
    double x;
    const size_t n = strcspn(s, ":");
    if (n == 0 || n >= sizeof word)
        return NULL;
    memcpy(word, s, n);
    word[n] = '\0';
    if (!td_text_to_real(word, &x) || !isfinite((float)x))
        return NULL;
    *out = (float)x;
    return s + n;
}

static td_status parse_list(const char *name, const char *text, int64_t channels, float *out)
{
    const char *s = text ? text : "";
    for (int64_t c = 0; c < channels; c++) {
        s = parse_number(s, &out[c]);
        if (!s || *s != (c + 1 < channels ? ':' : '\0'))
            return td_error(TD_ESHAPE, "normalize: %s is '%.80s', wanted %lld numbers like 1:2.5",
                            name, text ? text : "", (long long)channels);
        s += *s == ':';
    }
    return TD_OK;
}

td_status td_normalize_constants(const td_node *n, td_normalize_values *out)
{
    const td_normalize_attr *a = n->attr;
    const int64_t channels = td_in_type(n, 0)->dim[3];
    *out = (td_normalize_values){ { 0 }, { 0 } };
    if (channels > TD_NORMALIZE_CHANNELS)
        return td_error(TD_ESHAPE, "normalize: images of %lld channels, wanted 1 .. %d",
                        (long long)channels, TD_NORMALIZE_CHANNELS);
    TD_TRY(parse_list("mean", a->mean, channels, out->mean));
    TD_TRY(parse_list("std", a->std, channels, out->std));
    for (int64_t c = 0; c < channels; c++)
        if (!(out->std[c] > 0))
            return td_error(TD_ESHAPE, "normalize: std is '%.80s', wanted positive numbers",
                            a->std);
    return TD_OK;
}

static td_status normalize_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0);
    td_normalize_values unused;
    if (x->dtype != TD_DT_U8)
        return td_error(TD_ESHAPE, "normalize: operand 0 is %s, wanted u8",
                        td_dtype_name(x->dtype));
    TD_TRY(td_normalize_constants(n, &unused));
    *y = td_type_4d(td_dtype_parse(dtypes[((const td_normalize_attr *)n->attr)->to]), x->dim[0],
                    x->dim[3], x->dim[1], x->dim[2]);
    return TD_OK;
}

const td_op td_op_normalize = {
    .name = "normalize",
    .summary = "bytes of images to normalised floats, channels first",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = normalize_fields,
    .attr_bytes = sizeof(td_normalize_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .any_dtype = 1u,
    .infer = normalize_infer,
};

td_value *td_normalize(td_builder *b, td_value *x, const float mean[3], const float std[3],
                       td_dtype to)
{
    char text[2][3 * 32];
    for (int i = 0; i < 2; i++) {
        const float *v = i ? std : mean;
        if (x->type.dim[3] == 1)
            snprintf(text[i], sizeof text[i], "%.9g", (double)v[0]);
        else
            snprintf(text[i], sizeof text[i], "%.9g:%.9g:%.9g", (double)v[0], (double)v[1],
                     (double)v[2]);
    }
    const td_normalize_attr a = { .mean = text[0], .std = text[1], .to = td_normalize_to(to) };
    return td_emit(b, &td_op_normalize, &a, x);
}
