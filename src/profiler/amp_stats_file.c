/*
 * amp_stats_file.c -- reads and validates the files of amp_stats.c
 */
#include "profiler/amp_stats_file.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/json.h"
#include "base/log.h"

#define ELEMENTS_MAX ((int64_t)1 << 40) /* limit per tensor; sums over a graph still fit */

enum { BYTES_MAX = 1 << 30, TENSORS_MAX = 1 << 20 };

/* the position in the file, for messages */
typedef struct {
    td_arena *arena;
    char what[600]; /* "'FILE': line 3" */
    int tensor;     /* index, or -1 */
} place;

static td_status bad(const place *at, const char *member, double found, const char *wanted)
{
    if (at->tensor < 0)
        return td_error(TD_EFORMAT, "%s: %s: found %g, wanted %s", at->what, member, found, wanted);
    return td_error(TD_EFORMAT, "%s: tensors[%d].%s: found %g, wanted %s", at->what, at->tensor,
                    member, found, wanted);
}

/* TD_EFORMAT if a member is absent or of another kind */
static td_status named(const place *at, const char *member, td_status st)
{
    if (st != TD_ENOTFOUND)
        return st;
    if (at->tensor < 0)
        return td_error(TD_EFORMAT, "%s: '%s' is missing", at->what, member);
    return td_error(TD_EFORMAT, "%s: tensors[%d] has no '%s'", at->what, at->tensor, member);
}

static td_status get_text(const place *at, const td_json *j, const char *member, const char **out)
{
    const char *text;
    TD_TRY(named(at, member, td_json_text(j, member, &text)));
    *out = td_arena_text(at->arena, text);
    return *out ? TD_OK : TD_ENOMEM;
}

static td_status get_count(const place *at, const td_json *j, const char *member, int64_t least,
                           int64_t *out)
{
    TD_TRY(named(at, member, td_json_int(j, member, out)));
    return *out >= least ? TD_OK
                         : bad(at, member, (double)*out, least ? "at least 1" : "no less than 0");
}

static td_status get_share(const place *at, const td_json *j, const char *member, double *out)
{
    TD_TRY(named(at, member, td_json_number(j, member, out)));
    return *out >= 0 && *out <= 1 ? TD_OK : bad(at, member, *out, "a share, 0 to 1");
}

/* --- a tensor --------------------------------------------------------------------------------- */

static td_status read_half(const place *at, const td_json *j, td_half_type h, td_stats_half *out)
{
    const char *name = td_half_ranges[h].name;
    const td_json *half = td_json_get(j, name);
    if (!half)
        return named(at, name, TD_ENOTFOUND);
    TD_TRY(get_share(at, half, "overflow", &out->overflow));
    TD_TRY(get_share(at, half, "below_subnormal", &out->below_subnormal));
    return get_share(at, half, "below_normal", &out->below_normal);
}

static td_status read_bins(const place *at, const td_json *j, td_stats_tensor *t)
{
    int64_t first, sum = 0;
    const td_json *e = td_json_get(j, "exponents"), *counts = e ? td_json_get(e, "counts") : NULL;
    const size_t n = counts ? td_json_count(counts) : 0;
    if (!e)
        return TD_OK;
    if (!counts || td_json_kind_of(counts) != TD_JSON_ARRAY)
        return named(at, "exponents.counts", TD_ENOTFOUND);
    TD_TRY(named(at, "exponents.first", td_json_int(e, "first", &first)));
    if (first < TD_EXPONENT_MIN || n > TD_EXPONENT_BINS || first + (int64_t)n > TD_EXPONENT_MAX + 1)
        return bad(at, "exponents.first", (double)first, "exponents of float32, -149 to 127");
    t->bins = td_arena_alloc(at->arena, n + 1, sizeof *t->bins);
    if (!t->bins)
        return TD_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        TD_TRY(td_json_as_int(td_json_at(counts, i), &t->bins[i]));
        if (t->bins[i] < 0 || t->bins[i] > t->elements - sum)
            return bad(at, "exponents.counts", (double)t->bins[i],
                       "counts whose sum is at most 'elements'");
        sum += t->bins[i];
    }
    t->first = (int)first;
    t->n_bins = (int)n;
    return TD_OK;
}

static td_status read_tensor(const place *at, const td_json *j, td_stats_tensor *t)
{
    TD_TRY(get_text(at, j, "name", &t->name));
    TD_TRY(get_text(at, j, "label", &t->label));
    TD_TRY(get_text(at, j, "op", &t->op));
    TD_TRY(get_text(at, j, "kind", &t->kind));
    TD_TRY(get_text(at, j, "dtype", &t->dtype));
    if (td_json_get(j, "gradient_of"))
        TD_TRY(get_text(at, j, "gradient_of", &t->of));
    TD_TRY(get_count(at, j, "elements", 1, &t->elements));
    if (t->elements > ELEMENTS_MAX)
        return bad(at, "elements", (double)t->elements, "at most 2^40");
    TD_TRY(get_count(at, j, "infinite", 0, &t->infinite));
    TD_TRY(get_count(at, j, "nan", 0, &t->nan));
    TD_TRY(get_share(at, j, "zero", &t->zero));
    TD_TRY(named(at, "largest", td_json_number(j, "largest", &t->largest)));
    if (!(t->largest >= 0))
        return bad(at, "largest", t->largest, "a magnitude");
    for (int h = 0; h < TD_N_HALF; h++)
        TD_TRY(read_half(at, j, (td_half_type)h, &t->half[h]));
    return read_bins(at, j, t);
}

/* --- a line ----------------------------------------------------------------------------------- */

static td_status read_tensors(place *at, const td_json *doc, td_stats_step *s)
{
    const td_json *list = td_json_get(doc, "tensors");
    const size_t n = list ? td_json_count(list) : 0;
    if (!list || td_json_kind_of(list) != TD_JSON_ARRAY || n == 0)
        return td_error(TD_EFORMAT, "%s: 'tensors' is missing", at->what);
    if (n > TENSORS_MAX)
        return bad(at, "tensors", (double)n, "at most a million");
    s->tensors = td_arena_alloc(at->arena, n, sizeof *s->tensors);
    if (!s->tensors)
        return TD_ENOMEM;
    for (at->tensor = 0; at->tensor < (int)n; at->tensor++)
        TD_TRY(read_tensor(at, td_json_at(list, (size_t)at->tensor), &s->tensors[at->tensor]));
    s->n_tensors = (int)n;
    return TD_OK;
}

static td_status read_step(place *at, const td_json *doc, td_stats_step *s)
{
    at->tensor = -1;
    if (td_json_kind_of(doc) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT, "%s is not a JSON object", at->what);
    TD_TRY(get_count(at, doc, "step", 1, &s->step));
    TD_TRY(get_count(at, doc, "epoch", 0, &s->epoch));
    TD_TRY(get_count(at, doc, "iteration", 1, &s->iteration));
    TD_TRY(get_text(at, doc, "precision", &s->precision));
    TD_TRY(named(at, "loss_scale", td_json_number(doc, "loss_scale", &s->loss_scale)));
    if (!(s->loss_scale >= FLT_MIN && s->loss_scale <= FLT_MAX))
        return bad(at, "loss_scale", s->loss_scale, "a positive float32");
    TD_TRY(named(at, "skipped", td_json_bool(doc, "skipped", &s->is_skipped)));
    return read_tensors(at, doc, s);
}

static td_status read_line(td_stats_file *f, place *at, const char *line, size_t n)
{
    td_json *doc;
    TD_TRY(td_reserve(&f->steps, &f->cap_steps, f->n_steps + 1, sizeof *f->steps));
    td_stats_step *s = &f->steps[f->n_steps];
    *s = (td_stats_step){ 0 };
    TD_TRY(td_json_parse(line, n, at->what, &doc));
    td_status st = read_step(at, doc, s);
    td_json_free(doc);
    f->n_steps += st == TD_OK;
    return st;
}

static td_status read_lines(td_stats_file *f, const char *path, const char *text, size_t n)
{
    place at = { .arena = &f->arena };
    int number = 1;
    for (const char *line = text; line < text + n; number++) {
        const char *end = memchr(line, '\n', (size_t)(text + n - line));
        snprintf(at.what, sizeof at.what, "'%.500s': line %d", path, number);
        if (!end && f->n_steps) { /* the run was killed while writing it */
            td_log(TD_LOG_WARN, "inspect", "%s is truncated and ignored", at.what);
            return TD_OK;
        }
        if (!end)
            return td_error(TD_EFORMAT, "%s is truncated: its end is missing", at.what);
        TD_TRY(read_line(f, &at, line, (size_t)(end - line)));
        line = end + 1;
    }
    if (!f->n_steps)
        return td_error(TD_EFORMAT, "'%s' is empty: no step was observed", path);
    return TD_OK;
}

td_status td_stats_read(const char *path, td_stats_file *out)
{
    char *text;
    size_t n;
    *out = (td_stats_file){ 0 };
    TD_TRY(td_file_read(path, BYTES_MAX, &text, &n));
    td_status st = read_lines(out, path, text, n);
    td_free(text);
    if (st != TD_OK)
        td_stats_release(out);
    return st;
}

void td_stats_release(td_stats_file *f)
{
    td_free(f->steps);
    td_arena_release(&f->arena);
    *f = (td_stats_file){ 0 };
}

/* --- sums ------------------------------------------------------------------------------------- */

void td_stats_sum_gradients(const td_stats_step *s, td_stats_gradients *out)
{
    *out = (td_stats_gradients){ 0 };
    for (int i = 0; i < s->n_tensors; i++) {
        const td_stats_tensor *t = &s->tensors[i];
        if (!t->bins)
            continue;
        out->elements += t->elements;
        out->infinite += t->infinite;
        out->nan += t->nan;
        out->largest = t->largest > out->largest ? t->largest : out->largest;
        for (int k = 0; k < t->n_bins; k++) {
            out->bins[t->first + k - TD_EXPONENT_MIN] += t->bins[k];
            out->non_zero += t->bins[k];
        }
    }
}
