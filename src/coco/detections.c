/*
 * detections.c -- reads and writes COCO result files, entry by entry
 */
#include "coco/detections.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "io/atomic.h"
#include "io/json_tokens.h"

enum { WRITE_BYTES = 1 << 16, NUMBER_BYTES = 48 };

#define LARGEST_ID 9007199254740992.0 /* 2^53: larger integers are not exact in double */

/* --- reading ---------------------------------------------------------------------------------- */

enum { IMAGE, CATEGORY, BOX, SCORE, MEMBERS };

static const char *const member_names[MEMBERS] = { "image_id", "category_id", "bbox", "score" };

typedef struct {
    td_tokens *t;
    td_coco_detection *items;
    size_t n, cap;
} reading;

/* "detection 7: score is null, wanted a number" */
static td_status wrong(const reading *r, const char *name, const td_token *v, const char *wanted)
{
    char found[96];
    td_token_describe(v, found, sizeof found);
    return td_tokens_error(r->t, "detection %zu: %s is %s, wanted %s", r->n, name, found, wanted);
}

static td_status read_number(reading *r, const char *name, double *out)
{
    td_token v;
    TD_TRY(td_tokens_value(r->t, &v));
    if (v.kind != TD_TOKEN_NUMBER)
        return wrong(r, name, &v, "a number");
    if (!isfinite(v.number))
        return wrong(r, name, &v, "a finite number");
    *out = v.number;
    return TD_OK;
}

/* An id may be written 42 or 42.0. */
static td_status read_id(reading *r, const char *name, int64_t *out)
{
    td_token v;
    TD_TRY(td_tokens_value(r->t, &v));
    if (v.kind != TD_TOKEN_NUMBER)
        return wrong(r, name, &v, "an integer");
    if (!v.is_whole && !(fabs(v.number) <= LARGEST_ID && v.number == floor(v.number)))
        return wrong(r, name, &v, "an integer");
    *out = v.is_whole ? v.whole : (int64_t)v.number;
    return TD_OK;
}

static td_status read_box(reading *r, double box[4])
{
    static const char *const names[] = { "bbox[0]", "bbox[1]", "bbox[2]", "bbox[3]" };
    td_token v;
    int n = 0;
    TD_TRY(td_tokens_value(r->t, &v));
    if (v.kind != TD_TOKEN_LIST)
        return wrong(r, "bbox", &v, "[x, y, width, height]");
    for (;; n++) {
        bool more;
        TD_TRY(td_tokens_item(r->t, &more));
        if (!more)
            break;
        if (n == 4)
            return td_tokens_error(r->t, "detection %zu: bbox has more than 4 numbers", r->n);
        TD_TRY(read_number(r, names[n], &box[n]));
    }
    if (n < 4)
        return td_tokens_error(r->t, "detection %zu: bbox has %d numbers, wanted 4", r->n, n);
    return TD_OK;
}

static int member_of(const char *key)
{
    int m = 0;
    while (m < MEMBERS && strcmp(key, member_names[m]) != 0)
        m++;
    return m;
}

static td_status read_member(reading *r, int m, td_coco_detection *d)
{
    switch (m) {
    case IMAGE:
        return read_id(r, member_names[m], &d->image);
    case CATEGORY:
        return read_id(r, member_names[m], &d->category);
    case BOX:
        return read_box(r, d->box);
    case SCORE:
        return read_number(r, member_names[m], &d->score);
    default:
        return td_tokens_skip(r->t);
    }
}

static td_status read_entry(reading *r, td_coco_detection *d)
{
    bool has[MEMBERS + 1] = { false };
    td_token v;
    TD_TRY(td_tokens_value(r->t, &v));
    if (v.kind != TD_TOKEN_OBJECT)
        return wrong(r, "it", &v, "an object");
    for (;;) {
        const char *key;
        bool more;
        TD_TRY(td_tokens_key(r->t, &key, &more));
        if (!more)
            break;
        int m = member_of(key);
        if (m < MEMBERS && has[m])
            return td_tokens_error(r->t, "detection %zu has %s twice", r->n, member_names[m]);
        has[m] = true;
        TD_TRY(read_member(r, m, d));
    }
    for (int m = 0; m < MEMBERS; m++) {
        if (!has[m])
            return td_tokens_error(r->t, "detection %zu has no %s", r->n, member_names[m]);
    }
    return TD_OK;
}

static td_status read_all(reading *r)
{
    td_token v;
    TD_TRY(td_tokens_value(r->t, &v));
    if (v.kind != TD_TOKEN_LIST) {
        char found[96];
        td_token_describe(&v, found, sizeof found);
        return td_tokens_error(r->t, "it is %s, wanted a list of detections", found);
    }
    for (;; r->n++) {
        bool more;
        TD_TRY(td_tokens_item(r->t, &more));
        if (!more)
            break;
        TD_TRY(td_reserve(&r->items, &r->cap, r->n + 1, sizeof *r->items));
        TD_TRY(read_entry(r, &r->items[r->n]));
    }
    return td_tokens_end(r->t);
}

/* Reads all detections; takes ownership of `t`. */
static td_status read_from(td_tokens *t, td_detections *out)
{
    reading r = { .t = t };
    td_status st = read_all(&r);
    td_tokens_free(t);
    if (st == TD_OK)
        *out = (td_detections){ r.items, r.n };
    else
        td_free(r.items);
    return st;
}

td_status td_detections_read(const char *path, td_detections *out)
{
    td_tokens *t;
    *out = (td_detections){ 0 };
    TD_TRY(td_tokens_open(path, &t));
    return read_from(t, out);
}

td_status td_detections_parse(const void *bytes, size_t n_bytes, const char *what,
                              td_detections *out)
{
    td_tokens *t;
    *out = (td_detections){ 0 };
    TD_TRY(td_tokens_parse(bytes, n_bytes, what, &t));
    return read_from(t, out);
}

void td_detections_release(td_detections *d)
{
    td_free(d->items);
    *d = (td_detections){ 0 };
}

/* --- writing ---------------------------------------------------------------------------------- */

struct td_detections_file {
    td_atomic *file;
    td_text text; /* not yet written */
    int64_t n;
};

td_status td_detections_create(const char *path, td_detections_file **out)
{
    *out = NULL;
    td_detections_file *f = TD_NEW(td_detections_file);
    if (!f)
        return TD_ENOMEM;
    td_status st = td_atomic_open(path, &f->file);
    if (st == TD_OK)
        *out = f;
    else
        td_detections_close(f);
    return st;
}

void td_detections_close(td_detections_file *f)
{
    if (!f)
        return;
    td_atomic_close(f->file);
    td_text_release(&f->text);
    td_free(f);
}

/*
 * The shorter of 15 and 17 digits that reads back to the same double.  A host program may have set
 * a locale with another decimal separator; it is replaced by a point.
 */
static void add_number(td_text *out, double v)
{
    char with_locale[NUMBER_BYTES], plain[NUMBER_BYTES];
    snprintf(with_locale, sizeof with_locale, "%.15g", v);
    if (strtod(with_locale, NULL) != v)
        snprintf(with_locale, sizeof with_locale, "%.17g", v);
    size_t n = 0;
    for (const char *s = with_locale; *s; s++) {
        bool is_plain = strchr("0123456789+-e", *s) != NULL;
        if (is_plain)
            plain[n++] = *s;
        else if (n && plain[n - 1] != '.')
            plain[n++] = '.';
    }
    td_text_add_bytes(out, plain, n);
}

static td_status flush(td_detections_file *f)
{
    TD_TRY(td_text_status(&f->text));
    TD_TRY(td_atomic_write(f->file, td_text_get(&f->text), f->text.len));
    f->text.len = 0;
    return TD_OK;
}

td_status td_detections_add(td_detections_file *f, const td_coco_detection *d)
{
    bool is_finite = isfinite(d->score);
    for (int i = 0; i < 4; i++)
        is_finite = is_finite && isfinite(d->box[i]);
    if (!is_finite)
        return td_error(TD_ENUMERIC,
                        "detection %" PRId64 " in image %" PRId64
                        " has a number that is not finite",
                        f->n, d->image);
    td_text_add(&f->text, "%s{\"image_id\": %" PRId64 ", \"category_id\": %" PRId64 ", \"bbox\": [",
                f->n ? ",\n" : "[", d->image, d->category);
    for (int i = 0; i < 4; i++) {
        td_text_add(&f->text, i ? ", " : "");
        add_number(&f->text, d->box[i]);
    }
    td_text_add(&f->text, "], \"score\": ");
    add_number(&f->text, d->score);
    td_text_add(&f->text, "}");
    f->n++;
    return f->text.len < WRITE_BYTES ? td_text_status(&f->text) : flush(f);
}

td_status td_detections_commit(td_detections_file *f)
{
    td_text_add(&f->text, f->n ? "]\n" : "[]\n");
    TD_TRY(flush(f));
    return td_atomic_commit(f->file);
}
