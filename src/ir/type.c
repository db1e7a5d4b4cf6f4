/*
 * type.c -- shapes, layouts and their sizes
 *
 * Layouts are in oneDNN's notation: one letter per dimension from the slowest outer one to the
 * fastest, a capital if the dimension is also blocked, then the inner blocks as number + letter:
 *
 *     aBcd16b   [N, C/16, H, W, 16]          acdb   [N, H, W, C]          "" = abcd
 */
#include "ir/type.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define BLOCKS_MAX  ((int)(sizeof((td_blocking *)0)->block / sizeof(int64_t)))
#define PRODUCT_MAX ((int64_t)1 << 20) /* limit for one dimension; real layouts: < 256 */

td_type td_type_of(td_dtype dtype, int rank, const int64_t *dim)
{
    td_type t = { .dtype = dtype, .rank = rank };
    for (int i = 0; i < rank && i < TD_RANK_MAX; i++)
        t.dim[i] = dim[i];
    return t;
}

td_type td_type_scalar(td_dtype d)
{
    return (td_type){ .dtype = d };
}

td_type td_type_1d(td_dtype d, int64_t a)
{
    return (td_type){ .dtype = d, .rank = 1, .dim = { a } };
}

td_type td_type_2d(td_dtype d, int64_t a, int64_t b)
{
    return (td_type){ .dtype = d, .rank = 2, .dim = { a, b } };
}

td_type td_type_4d(td_dtype d, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (td_type){ .dtype = d, .rank = 4, .dim = { n, c, h, w } };
}

int64_t td_type_count(const td_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, t->dim[i], &n))
            return INT64_MAX;
    return n;
}

bool td_type_same_shape(const td_type *a, const td_type *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool td_type_equal(const td_type *a, const td_type *b)
{
    return a->dtype == b->dtype && td_type_same_shape(a, b) && strcmp(a->layout, b->layout) == 0;
}

bool td_type_is_plain(const td_type *t)
{
    return t->layout[0] == '\0';
}

bool td_dtype_is_float(td_dtype d)
{
    return d == TD_DT_F32 || d == TD_DT_F64 || td_dtype_is_half(d);
}

bool td_dtype_is_half(td_dtype d)
{
    return d == TD_DT_BF16 || d == TD_DT_F16;
}

td_type td_type_as(const td_type *t, td_dtype d)
{
    td_type as = *t;
    as.dtype = d;
    return as;
}

td_type td_type_plain(const td_type *t)
{
    td_type plain = *t;
    memset(plain.layout, 0, sizeof plain.layout);
    return plain;
}

/* sets up the dimensions that a layout's letters name; returns the first letter */
static const char *split_groups(const td_type *t, td_blocking *bl)
{
    const char *s = t->layout;
    size_t digits = strspn(s, "0123456789");
    bl->rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        bl->dim[i] = t->dim[i];
    if (!digits)
        return s;

    long groups = digits < 10 ? strtol(s, NULL, 10) : 0;
    if (s[digits] != 'g' || groups < 1 || t->rank < 1 || t->dim[0] % groups)
        return NULL;
    for (int i = t->rank; i > 0; i--)
        bl->dim[i] = t->dim[i - 1];
    bl->dim[0] = groups;
    bl->dim[1] = t->dim[0] / groups;
    bl->rank = t->rank + 1;
    return s + digits + 1;
}

/* reads the letters into bl->order; returns the end; NULL: not an order of the dimensions */
static const char *read_order(const char *s, td_blocking *bl, unsigned *blocked)
{
    unsigned seen = 0;
    int n_outer = 0;
    for (; isalpha((unsigned char)*s); s++) {
        int d = tolower((unsigned char)*s) - 'a';
        if (d >= bl->rank || (seen >> d & 1))
            return NULL;
        seen |= 1u << d;
        *blocked |= (unsigned)(isupper((unsigned char)*s) != 0) << d;
        bl->order[n_outer++] = d;
    }
    if (n_outer == 0 && *s == '\0')
        for (; n_outer < bl->rank; n_outer++)
            bl->order[n_outer] = n_outer;
    return n_outer == bl->rank ? s : NULL;
}

/* reads "16b4a" into bl->block, and the product of each dimension's blocks; false if malformed */
static bool read_blocks(const char *s, td_blocking *bl, unsigned blocked, int64_t *product)
{
    unsigned has_block = 0;
    while (*s) {
        size_t digits = strspn(s, "0123456789");
        long n = digits && digits < 6 ? strtol(s, NULL, 10) : 0;
        int d = s[digits] - 'a';
        if (n < 2 || n > 4096 || d < 0 || d >= bl->rank || bl->n_blocks == BLOCKS_MAX ||
            product[d] > PRODUCT_MAX / n)
            return false;
        bl->block_dim[bl->n_blocks] = d;
        bl->block[bl->n_blocks++] = n;
        product[d] *= n;
        has_block |= 1u << d;
        s += digits + 1;
    }
    return has_block == blocked;
}

bool td_type_blocking(const td_type *t, td_blocking *bl)
{
    unsigned blocked = 0;
    int64_t product[TD_RANK_MAX + 1];
    *bl = (td_blocking){ 0 };
    const char *s = split_groups(t, bl);
    if (s)
        s = read_order(s, bl, &blocked);
    for (int i = 0; i < bl->rank; i++)
        product[i] = 1;
    if (!s || !read_blocks(s, bl, blocked, product))
        return false;
    for (int i = 0; i < bl->rank; i++) {
        int64_t rest = bl->dim[i] % product[i];
        if (__builtin_add_overflow(bl->dim[i], rest ? product[i] - rest : 0, &bl->padded[i]))
            return false;
    }
    return true;
}

int64_t td_type_padded_count(const td_type *t)
{
    return td_type_bytes(t) / (int64_t)td_dtype_bytes(t->dtype);
}

int64_t td_type_bytes(const td_type *t)
{
    td_blocking bl;
    if (!td_type_blocking(t, &bl))
        return 0;
    int64_t n = (int64_t)td_dtype_bytes(t->dtype);
    for (int i = 0; i < bl.rank; i++)
        if (bl.padded[i] < 1 || __builtin_mul_overflow(n, bl.padded[i], &n))
            return 0;
    return n <= TD_TYPE_BYTES_MAX ? n : 0;
}

int64_t td_mul_capped(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}

int64_t td_blocking_offset(const td_blocking *bl, const td_type *t, const int64_t *at)
{
    int64_t pos[TD_RANK_MAX + 1], outer_size[TD_RANK_MAX + 1];
    if (bl->rank == t->rank) {
        memcpy(pos, at, (size_t)t->rank * sizeof pos[0]);
    } else {
        pos[0] = at[0] / bl->dim[1];
        pos[1] = at[0] % bl->dim[1];
        for (int i = 1; i < t->rank; i++)
            pos[i + 1] = at[i];
    }

    int64_t inner = 0, inner_count = 1, stride = 1;
    memcpy(outer_size, bl->padded, sizeof outer_size);
    for (int i = bl->n_blocks - 1; i >= 0; i--) {
        int d = bl->block_dim[i];
        inner += pos[d] % bl->block[i] * inner_count;
        pos[d] /= bl->block[i];
        outer_size[d] /= bl->block[i];
        inner_count *= bl->block[i];
    }
    int64_t outer = 0;
    for (int i = bl->rank - 1; i >= 0; i--) {
        outer += pos[bl->order[i]] * stride;
        stride *= outer_size[bl->order[i]];
    }
    return outer * inner_count + inner;
}

void td_type_print(const td_type *t, td_text *out)
{
    td_text_add(out, "%s[", td_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++)
        td_text_add(out, i ? ",%lld" : "%lld", (long long)t->dim[i]);
    td_text_add(out, td_type_is_plain(t) ? "]" : "]@%s", t->layout);
}

bool td_type_parse(const char *s, td_type *out, const char **end)
{
    char word[8];
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
    *out = (td_type){ 0 };
    if (n == 0 || n >= sizeof word || s[n] != '[')
        return false;
    memcpy(word, s, n);
    word[n] = '\0';
    out->dtype = td_dtype_parse(word);
    if (out->dtype == TD_DT_NONE)
        return false;

    for (s += n + 1; *s != ']'; s += *s == ',') {
        char *stop;
        if (!isdigit((unsigned char)*s) || out->rank == TD_RANK_MAX)
            return false;
        long long v = strtoll(s, &stop, 10);
        if (v > (1ll << 40) || (*stop != ',' && *stop != ']') || (*stop == ',' && stop[1] == ']'))
            return false;
        out->dim[out->rank++] = v;
        s = stop;
    }
    s++;
    if (*s == '@') {
        n = strspn(++s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        if (n == 0 || n >= TD_LAYOUT_BYTES)
            return false;
        memcpy(out->layout, s, n);
        s += n;
        td_blocking bl;
        if (!td_type_blocking(out, &bl))
            return false;
    }
    *end = s;
    return true;
}

int64_t td_windows(int64_t in, int64_t kernel, int64_t stride, int64_t pads, int64_t dilation)
{
    int64_t room = in + pads - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}
