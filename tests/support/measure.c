/*
 * measure.c -- compares tensors with those of a golden case, within its tolerances
 */
#include "support/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "optim/optimizer.h"
#include "support/expect.h"
#include "support/golden.h"

#define N_SAMPLES 8

/* --- one tensor ------------------------------------------------------------------------------ */

/* a row of a case's summary and samples */
typedef struct {
    double norm, sum, largest;
    double samples[N_SAMPLES];
} row;

static row summarise(const double *x, int64_t n)
{
    row r = { 0 };
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += x[i] * x[i];
        r.sum += x[i];
        r.largest = fmax(r.largest, fabs(x[i])); /* skips a NaN, which norm and sum keep */
    }
    r.norm = sqrt(squares);
    for (int64_t k = 0; k < N_SAMPLES; k++)
        r.samples[k] = x[td_golden_sample(k, n)];
    return r;
}

/* NaN counts as the worst */
static double worse(double a, double b)
{
    return a >= b ? a : isnan(b) || isnan(a) ? (double)INFINITY : b;
}

static double relative(double difference, double size)
{
    return difference == 0 ? 0 : fabs(difference) / size;
}

static double error_of(const row *a, const row *b, int64_t n)
{
    double e = relative(a->largest - b->largest, b->largest);
    for (int k = 0; k < N_SAMPLES; k++)
        e = worse(e, relative(a->samples[k] - b->samples[k], b->largest));
    e = worse(e, relative(a->norm - b->norm, b->norm));
    return worse(e, relative(a->sum - b->sum, b->norm * sqrt((double)n)));
}

/* --- fetching -------------------------------------------------------------------------------- */

double *td_fetch_param(void *ctx, const char *name, int64_t *count)
{
    return td_test_network_param(ctx, name, count);
}

double *td_fetch_momentum_buffer(void *ctx, const char *name, int64_t *count)
{
    char full[160];
    snprintf(full, sizeof full, TD_MOMENTUM_PREFIX "%s", name);
    return td_test_network_param(ctx, full, count);
}

/* --- groups ---------------------------------------------------------------------------------- */

static const double *stored(const td_test_network_case *c, const char *key, const char *tail,
                            int64_t rows, int64_t columns)
{
    char name[96];
    snprintf(name, sizeof name, "float64.%s%s", key, tail);
    const td_tensor *t = td_tensors_get(c->tensors, name);
    if (!t)
        fail_msg("the case has no '%s'", name);
    assert_int_equal(t->dtype, TD_DT_F64);
    assert_int_equal(t->n_bytes, (size_t)(rows * columns) * sizeof(double));
    return t->data;
}

/* elements of entry i of a list of [name, shape, ...] */
static int64_t listed(const td_json *list, size_t i, const char **name)
{
    const td_json *entry = td_json_at(list, i), *shape = td_json_at(entry, 1);
    int64_t n = 1, d;
    expect_ok(td_json_as_text(td_json_at(entry, 0), name));
    for (size_t k = 0; k < td_json_count(shape); k++) {
        expect_ok(td_json_as_int(td_json_at(shape, k), &d));
        n *= d;
    }
    return n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* sums of squares over all tensors of a group */
typedef struct {
    double difference, found, wanted;
} squares;

static double l2_of(const squares *s)
{
    double norms = fabs(sqrt(s->found) - sqrt(s->wanted));
    return worse(sqrt(s->difference), norms) / sqrt(s->wanted);
}

static void add_squares(squares *s, const row *a, const row *b, int64_t n)
{
    for (int k = 0; k < N_SAMPLES; k++) {
        double d = a->samples[k] - b->samples[k];
        s->difference += d * d * (double)n / N_SAMPLES;
    }
    s->found += a->norm * a->norm;
    s->wanted += b->norm * b->norm;
}

void td_measure_group(td_measure *m, const td_test_network_case *c, const char *key,
                      const char *list, td_fetch *fetch, void *ctx)
{
    const td_json *names = td_json_get(c->doc, list);
    const size_t n = td_json_count(names);
    const double *summary = stored(c, key, ".summary", (int64_t)n, 3);
    const double *samples = stored(c, key, ".samples", (int64_t)n, N_SAMPLES);
    double *errors = td_alloc(n + 1, sizeof *errors);
    squares s = { 0 };

    assert_true(n > 0 && errors);
    *m = (td_measure){ 0 };
    for (size_t i = 0; i < n; i++) {
        const char *name;
        int64_t wanted = listed(names, i, &name), count;
        row b = { .norm = summary[3 * i],
                  .sum = summary[3 * i + 1],
                  .largest = summary[3 * i + 2] };
        memcpy(b.samples, samples + N_SAMPLES * i, sizeof b.samples);
        double *x = fetch(ctx, name, &count);
        if (count != wanted)
            fail_msg("'%s' has %lld elements, wanted %lld", name, (long long)count,
                     (long long)wanted);
        const row a = summarise(x, count);
        td_free(x);
        errors[i] = error_of(&a, &b, count);
        add_squares(&s, &a, &b, count);
        if (i == 0 || errors[i] > m->worst) {
            m->worst = errors[i];
            snprintf(m->worst_name, sizeof m->worst_name, "%s", name);
        }
    }
    qsort(errors, n, sizeof *errors, ascending);
    m->median = errors[n / 2];
    m->l2 = l2_of(&s);
    td_free(errors);
}

double td_measure_whole(const td_test_network_case *c, const char *key, const double *found,
                        int64_t count)
{
    const double *wanted = stored(c, key, "", count, 1);
    double largest = 0, e = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(wanted[i]));
        e = worse(e, fabs(found[i] - wanted[i]));
    }
    return relative(e, largest);
}

/* --- reports --------------------------------------------------------------------------------- */

void td_findings_add(td_findings *r, const char *what, double found, double limit,
                     const char *where)
{
    td_text_add(&r->line, "  %s %.1e", what, found);
    if (limit == TD_NO_LIMIT)
        return;
    r->n_compared++;
    const bool is_fine = found <= limit;
    td_text_add(&r->line, is_fine ? " (%.1e)" : " OVER %.1e", limit);
    if (is_fine)
        return;
    r->n_over++;
    if (where)
        td_text_add(&r->line, " in %s", where);
}

void td_findings_end(td_findings *r, const char *title)
{
    const bool is_fine = r->n_compared > 0 && r->n_over == 0;
    print_message("%s:%s\n", title, td_text_get(&r->line));
    td_text_release(&r->line);
    if (!is_fine)
        fail_msg("%d of %d figures are over their limits", r->n_over, r->n_compared);
    *r = (td_findings){ 0 };
}
