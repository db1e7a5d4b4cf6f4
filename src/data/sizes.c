/*
 * sizes.c -- parses the schedule of image sizes
 */
#include "data/sizes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Read a number of digits only; false if there are none or too many. */
static bool read_number(const char **at, int64_t *out)
{
    const char *p = *at;
    int64_t x = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (p - *at >= 9)
            return false;
        x = 10 * x + (*p - '0');
    }
    bool is_number = p > *at;
    *at = p;
    *out = x;
    return is_number;
}

static td_status add(td_sizes *s, int64_t epoch, int64_t size, const char *text)
{
    if (s->n == TD_SIZE_STEPS_MAX)
        return td_error(TD_EUSAGE, "image sizes '%s': more than %d steps", text, s->n);
    if (s->n == 0 && epoch != 0)
        return td_error(TD_EUSAGE,
                        "image sizes '%s': the first step begins at epoch %" PRId64 ", wanted 0",
                        text, epoch);
    if (s->n > 0 && epoch <= s->epoch[s->n - 1])
        return td_error(TD_EUSAGE, "image sizes '%s': epoch %" PRId64 " comes after epoch %" PRId64,
                        text, epoch, s->epoch[s->n - 1]);
    if (size < 1 || size > TD_SIZE_PIXELS_MAX)
        return td_error(TD_EUSAGE, "image sizes '%s': size %" PRId64 ", wanted 1 .. %d", text, size,
                        TD_SIZE_PIXELS_MAX);
    s->epoch[s->n] = epoch;
    s->size[s->n++] = (int)size;
    return TD_OK;
}

td_status td_sizes_parse(const char *text, td_sizes *out)
{
    td_sizes s = { 0 };
    *out = s;
    for (const char *p = text; p; p++) {
        int64_t epoch, size;
        bool is_pair = read_number(&p, &epoch) && *p == ':';
        if (is_pair)
            p++;
        if (!is_pair || !read_number(&p, &size) || (*p && *p != ','))
            return td_error(TD_EUSAGE,
                            "image sizes '%s': wanted EPOCH:SIZE pairs, '0:128,30:160', at "
                            "character %d",
                            text, (int)(p - text) + 1);
        TD_TRY(add(&s, epoch, size, text));
        if (!*p)
            break;
    }
    *out = s;
    return TD_OK;
}

int td_sizes_at(const td_sizes *s, int64_t epoch, int otherwise)
{
    for (int i = s->n - 1; i >= 0; i--)
        if (epoch >= s->epoch[i])
            return s->size[i];
    return otherwise;
}

int td_sizes_largest(const td_sizes *s, int otherwise)
{
    int largest = s->n ? 0 : otherwise;
    for (int i = 0; i < s->n; i++)
        largest = s->size[i] > largest ? s->size[i] : largest;
    return largest;
}
