/*
 * request_image.c -- the image in a request: parameters, position of its bytes, cost of decoding
 *
 * The cost of an image is known from its header: the number of pixels, and the scans of a
 * progressive JPEG, each of which is a pass over all pixels.  Separate threads decode large images.
 */
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "serve/kind.h"

enum {
    SIDE_MAX = 65535,          /* JPEG's limit; the tables for resizing grow with a side */
    LARGE_PIXELS = 8000 * 1000 /* takes about 0.1 s */
};

/* --- parameters ------------------------------------------------------------------------------- */

/* '-' and '_' are the same, as on the command line */
static bool is_name(const char *a, const char *b)
{
    while (*a && (*a == *b || (strchr("-_", *a) && *b && strchr("-_", *b))))
        a++, b++;
    return !*a && !*b;
}

/* TD_EARG unless the kind accepts all parameters */
static td_status check_params(const td_service *s, const td_request *rq)
{
    if (rq->n_params > TD_PARAMS_MAX)
        return td_error(TD_EARG, "more than %d parameters", TD_PARAMS_MAX);
    for (int i = 0; i < rq->n_params; i++) {
        const td_query *p = &rq->params[i];
        const char *const *known = s->kind->params;
        while (*known && !is_name(*known, p->name))
            known++;
        if (*known && p->value)
            continue;
        if (*known)
            return td_error(TD_EARG, "parameter '%s' has no value", p->name);
        td_text names = { 0 };
        for (known = s->kind->params; *known; known++)
            td_text_add(&names, "%s%s", known > s->kind->params ? ", " : "", *known);
        td_status st = td_error(TD_EARG, "unknown parameter '%.100s', wanted %s", p->name,
                                td_text_get(&names));
        td_text_release(&names);
        return st;
    }
    return TD_OK;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static td_status find(const td_request *rq, const char **bytes, size_t *n)
{
    *bytes = rq->n_body ? rq->body : "";
    *n = rq->n_body;
    if (rq->content_type && strncasecmp(rq->content_type, "multipart/form-data", 19) == 0)
        return td_multipart_find(rq->content_type, rq->body, rq->n_body, bytes, n);
    return TD_OK;
}

/* the number of markers that begin a scan; coded data cannot contain one */
static int count_scans(const char *bytes, size_t n)
{
    int scans = 0;
    const char *end = bytes + n;
    for (const char *at = bytes; (at = memmem(at, (size_t)(end - at), "\xFF\xDA", 2)); at += 2)
        scans++;
    return scans;
}

bool td_image_is_large(const td_request *rq)
{
    const char *bytes;
    size_t n;
    td_image_info info;
    if (find(rq, &bytes, &n) != TD_OK || td_image_probe(bytes, n, &info) != TD_OK)
        return false; /* td_image_read returns the error */
    int64_t cost = (int64_t)info.width * info.height;
    if (info.is_progressive && strcmp(info.format, "JPEG") == 0)
        cost += cost / 4 * count_scans(bytes, n);
    return cost > LARGE_PIXELS;
}

static td_status check_size(const td_service *s, const char *bytes, size_t n)
{
    td_image_info info;
    const int64_t limit = s->transform.max_pixels;
    TD_TRY(td_image_probe(bytes, n, &info));
    if (info.width > SIDE_MAX || info.height > SIDE_MAX)
        return td_error(TD_ELIMIT, "the image has %d x %d pixels, the limit for a side is %d",
                        info.width, info.height, SIDE_MAX);
    if (limit && (int64_t)info.width * info.height > limit)
        return td_error(TD_ELIMIT, "the image has %d x %d pixels, the limit is %lld in all",
                        info.width, info.height, (long long)limit);
    return TD_OK;
}

td_status td_image_read(const td_service *s, const td_request *rq, td_transformer *buffers,
                        td_work *w)
{
    const char *bytes;
    size_t n;
    const size_t values = td_transform_values(&s->transform);
    TD_TRY(check_params(s, rq));
    TD_TRY(s->kind->options(s, rq, w));
    TD_TRY(find(rq, &bytes, &n));
    TD_TRY(check_size(s, bytes, n));
    w->n = 1;
    if (s->transform.as_bytes)
        TD_TRY(TD_ALLOC(w->pixels, values));
    else
        TD_TRY(TD_ALLOC(w->images, values));
    return s->kind->read_row(s, buffers, bytes, n, w, w->pixels ? (void *)w->pixels : w->images);
}
