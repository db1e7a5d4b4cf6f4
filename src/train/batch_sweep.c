/*
 * batch_sweep.c -- one network at several batch sizes, each measured in a process of its own, so
 * that peak memory is its own too
 */
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/log.h"
#include "train/benchmark.h"

#define MAX_BATCHES 64

typedef struct {
    int batch;
    td_text json; /* what `tandem benchmark --json` prints */
    double median, min, max, avg, p90, p95, p99, peak_bytes;
} result;

typedef struct {
    result rows[MAX_BATCHES];
    int n;
} sweep;

/* "1,2,4" */
static td_status read_list(const char *list, sweep *s)
{
    for (const char *p = list; *p || p == list;) {
        char *end;
        long batch = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || (*end == ',' && !end[1]))
            return td_error(TD_EUSAGE, "--batch-sizes: '%.80s' is no list of numbers, '1,2,4'",
                            list);
        if (batch < 1 || batch > 1 << 20)
            return td_error(TD_EUSAGE, "--batch-sizes: %.20s is out of range, wanted 1 to 1048576",
                            p);
        if (s->n == MAX_BATCHES)
            return td_error(TD_EUSAGE, "--batch-sizes: more than %d of them", MAX_BATCHES);
        s->rows[s->n++].batch = (int)batch;
        p = *end ? end + 1 : end;
    }
    return TD_OK;
}

static td_status measure(void *opts, td_text *out)
{
    return td_benchmark_network(opts, out);
}

static td_status read_result(result *r)
{
    td_status st = TD_OK;
    td_json *doc;
    TD_TRY(td_json_parse(td_text_get(&r->json), r->json.len, "the result", &doc));
    const td_json *speed = td_json_get(doc, "images_per_s");
    const td_json *latency = td_json_get(doc, "latency_ms");
    TD_OUT(td_json_number(speed, "median", &r->median));
    TD_OUT(td_json_number(speed, "min", &r->min));
    TD_OUT(td_json_number(speed, "max", &r->max));
    TD_OUT(td_json_number(latency, "avg", &r->avg));
    TD_OUT(td_json_number(latency, "p90", &r->p90));
    TD_OUT(td_json_number(latency, "p95", &r->p95));
    TD_OUT(td_json_number(latency, "p99", &r->p99));
    TD_OUT(td_json_number(doc, "peak_memory_bytes", &r->peak_bytes));
out:
    td_json_free(doc);
    return st;
}

static td_status run_one(const td_benchmark_opts *o, result *r)
{
    td_benchmark_opts one = *o;
    one.batch_size = r->batch;
    one.batch_sizes = NULL;
    td_log(TD_LOG_INFO, "benchmark", "batch %d", r->batch);
    TD_TRY_MSG(td_child_run(measure, &one, &r->json), "batch %d", r->batch);
    return read_result(r);
}

static void show_text(const td_benchmark_opts *o, const sweep *s, td_text *out)
{
    td_text_add(out, "%7s %10s %10s %10s %9s %9s %9s %9s %9s\n", "batch", "images/s", "min", "max",
                "avg ms", "p90", "p95", "p99", "peak MB");
    for (int i = 0; i < s->n; i++) {
        const result *r = &s->rows[i];
        td_text_add(out, "%7d %10.2f %10.2f %10.2f %9.2f %9.2f %9.2f %9.2f %9.1f\n", r->batch,
                    r->median, r->min, r->max, r->avg, r->p90, r->p95, r->p99, r->peak_bytes / 1e6);
    }
    td_text_add(out,
                "\nimages/s: median, slowest and fastest of %d iterations after %d that do not "
                "count; ms: of a batch\n",
                o->iters, o->warmup);
}

static void show_json(const sweep *s, td_text *out)
{
    td_text_add(out, "{\"batch_sizes\": [");
    for (int i = 0; i < s->n; i++)
        td_text_add(out, "%s%s", i ? ", " : "", td_text_get(&s->rows[i].json));
    td_text_add(out, "]}");
}

td_status td_benchmark_batches(const td_benchmark_opts *o, td_text *out)
{
    td_status st = TD_OK;
    sweep s = { .n = 0 };
    TD_TRY(read_list(o->batch_sizes, &s));
    for (int i = 0; i < s.n; i++)
        TD_OUT(run_one(o, &s.rows[i]));
    if (o->as_table)
        show_text(o, &s, out);
    else
        show_json(&s, out);
    st = td_text_status(out);
out:
    for (int i = 0; i < s.n; i++)
        td_text_release(&s.rows[i].json);
    return st;
}
