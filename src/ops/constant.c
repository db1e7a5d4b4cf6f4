/*
 * constant.c -- a tensor whose elements are known
 *
 *   constant {value, type} -> y     every element `value`
 *   constant {values, type} -> y    these elements in plain order: "0:0.5@3:-1" is 0, three times
 *                                   0.5, and -1
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field constant_fields[] = {
    TD_REAL(td_constant_attr, value, 0, -1e300, 1e300, "of every element"),
    TD_TEXT(td_constant_attr, type, "f32[]", "TYPE", "of the result"),
    TD_TEXT(td_constant_attr, values, NULL, "V@N:V:..", "of the elements: V, N times"),
    TD_END,
};
/* clang-format on */

td_values_cursor td_constant_values(const td_node *n)
{
    const td_constant_attr *a = n->attr;
    return (td_values_cursor){ .rest = a->values ? a->values : "" };
}

bool td_constant_next(td_values_cursor *c)
{
    const char *s = c->rest;
    char *end;
    if (!*s || strspn(s, "-0123456789inf") == 0) /* no blanks, no hexadecimal numbers */
        return false;
    c->value = strtod(s, &end);
    c->times = 1;
    if (end == s || isnan(c->value) || memchr(s, 'x', (size_t)(end - s)))
        return false;
    if (*end == '@') {
        s = end + 1;
        c->times = *s >= '1' && *s <= '9' ? strtoll(s, &end, 10) : 0;
    }
    if (c->times < 1 || c->times > TD_TYPE_BYTES_MAX || (*end && (*end != ':' || !end[1])))
        return false;
    c->rest = *end ? end + 1 : end;
    return true;
}

/* --- elements -------------------------------------------------------------------------------- */

static int64_t saturated(double x, int64_t lowest, int64_t highest)
{
    return x <= (double)lowest ? lowest : x >= (double)highest ? highest : (int64_t)x;
}

static void store(td_dtype d, double x, unsigned char *to)
{
    const float f = (float)x;
    const uint16_t half = d == TD_DT_F16 ? td_f32_to_f16(f) : td_f32_to_bf16(f);
    const int64_t i64 = saturated(x, INT64_MIN, INT64_MAX);
    const int32_t i32 = (int32_t)saturated(x, INT32_MIN, INT32_MAX);
    if (d == TD_DT_F64)
        memcpy(to, &x, sizeof x);
    else if (d == TD_DT_F32)
        memcpy(to, &f, sizeof f);
    else if (td_dtype_is_half(d))
        memcpy(to, &half, sizeof half);
    else if (d == TD_DT_I64)
        memcpy(to, &i64, sizeof i64);
    else if (d == TD_DT_I32)
        memcpy(to, &i32, sizeof i32);
    else
        *to = d == TD_DT_U8 ? (unsigned char)saturated(x, 0, UINT8_MAX)
                            : (unsigned char)saturated(x, INT8_MIN, INT8_MAX);
}

void td_constant_fill(const td_node *n, void *to)
{
    const td_type *t = &n->out[0]->type;
    const td_constant_attr *a = n->attr;
    const size_t each = td_dtype_bytes(t->dtype), count = (size_t)td_type_count(t);
    td_values_cursor c = td_constant_values(n);
    unsigned char *at = to, *const end = at + count * each;
    if (!a->values) {
        c.value = a->value;
        c.times = (int64_t)count;
    }
    while (at < end && (!a->values || td_constant_next(&c))) {
        store(t->dtype, c.value, at);
        for (int64_t i = 1; i < c.times && at + each < end; i++, at += each)
            memcpy(at + each, at, each);
        at += each;
    }
}

/* --- the op ----------------------------------------------------------------------------------- */

/* as many values as the type has elements? */
static td_status check_values(const td_node *n, const td_type *y)
{
    td_values_cursor c = td_constant_values(n);
    int64_t count = 0;
    while (*c.rest && count <= td_type_count(y)) {
        if (!td_constant_next(&c))
            return td_error(TD_ESHAPE, "constant: '%.40s' is not a list of numbers like 0:0.5@3:-1",
                            c.rest);
        count += c.times;
    }
    return count == td_type_count(y)
               ? TD_OK
               : td_error(TD_ESHAPE, "constant: %lld values%s for %lld elements", (long long)count,
                          *c.rest ? " and more" : "", (long long)td_type_count(y));
}

static td_status constant_infer(const td_node *n, td_type *y)
{
    const td_constant_attr *a = n->attr;
    const char *end;
    if (!a->type || !td_type_parse(a->type, y, &end) || *end)
        return td_error(TD_ESHAPE, "constant: '%s' is not a type", a->type ? a->type : "");
    if (a->values && (a->value < 0 || a->value > 0))
        return td_error(TD_ESHAPE, "constant: both value and values");
    return a->values ? check_values(n, y) : TD_OK;
}

const td_op td_op_constant = {
    .name = "constant",
    .summary = "elements that are known",
    .n_out = 1,
    .fields = constant_fields,
    .attr_bytes = sizeof(td_constant_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = constant_infer,
};
