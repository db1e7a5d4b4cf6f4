/*
 * sweep.c -- measures one network at several precisions, numbers of ranks and batch sizes
 *
 *     precisions x ranks x batches -> one process each, or ranks -> JSON -> table
 *
 * Rows need separate processes, because the peak of a process's memory never decreases.  One rank
 * is a fork; with --nproc, all rows, also those with one rank, are new processes of this program,
 * which inherit their configuration as an open file.  Every rank has the same number of threads in
 * all rows, as every worker of the reference has one GPU: otherwise scaling would compare a rank
 * with a whole machine.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/child.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/threads.h"
#include "benchmark/benchmark.h"
#include "benchmark/benchmark_text.h"
#include "benchmark/number_list.h"
#include "loggers/throughput.h"
#include "options/field.h"
#include "pass/amp.h"
#include "tandem/launch.h"
#include "tandem/program.h"

enum { MAX_ROWS = 256 };

typedef struct {
    td_precision precision;
    int ranks, batch;
    td_text json; /* output of `tandem benchmark --json` */
    char precision_name[8];
    double median, min, max, last_quarter, avg, p90, p95, p99, peak_bytes, threads;
    double speedup; /* relative to the base precision, same ranks and batch; NaN: not measured */
    bool is_device_peak;   /* peak_bytes is of the device's memory */
    double times_one_rank; /* relative to one rank, same precision and batch; NaN: not measured */
} row;

typedef struct {
    const td_benchmark_opts *o;
    td_number_list precisions, ranks, batches;
    row *rows;
    int n;
} sweep;

/* --- lists ------------------------------------------------------------------------------------ */

/* Parse "fp32,bf16". */
static td_status read_precisions(const char *text, td_number_list *out)
{
    static const struct {
        const char *name;
        int precision;
    } known[] = { { "fp32", TD_PRECISION_FP32 }, { "float32", TD_PRECISION_FP32 },
                  { "bf16", TD_PRECISION_BF16 }, { "bfloat16", TD_PRECISION_BF16 },
                  { "fp16", TD_PRECISION_FP16 }, { "float16", TD_PRECISION_FP16 } };
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        int found = -1;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == n && strncmp(known[i].name, p, n) == 0)
                found = known[i].precision;
        if (found < 0)
            return td_error(TD_EUSAGE, "--precisions: '%.*s' is not one of fp32, bf16 and fp16",
                            (int)(n < 40 ? n : 40), p);
        if (out->n == TD_LIST_MAX)
            return td_error(TD_EUSAGE, "--precisions: more than %d of them", TD_LIST_MAX);
        out->item[out->n++] = found;
        p += n;
        if (!*p)
            return TD_OK;
    }
}

/* Read the lists; without one, use the single option's value. */
static td_status read_lists(sweep *s)
{
    const td_benchmark_opts *o = s->o;
    s->precisions = (td_number_list){ .n = 0 };
    s->ranks = (td_number_list){ .n = 0 };
    s->batches = (td_number_list){ .n = 0 };
    if (o->precisions)
        TD_TRY(read_precisions(o->precisions, &s->precisions));
    else
        s->precisions.item[s->precisions.n++] = (double)o->amp.precision;
    if (o->nproc)
        TD_TRY(td_list_read_counts("nproc", o->nproc, 1024, &s->ranks));
    else
        s->ranks.item[s->ranks.n++] = 1;
    if (o->batch_sizes)
        TD_TRY(td_list_read_counts("batch-sizes", o->batch_sizes, 1 << 20, &s->batches));
    else
        s->batches.item[s->batches.n++] = o->batch_size;
    if (s->precisions.n * s->ranks.n * s->batches.n > MAX_ROWS)
        return td_error(TD_EUSAGE, "%d measurements, wanted at most %d in a table",
                        s->precisions.n * s->ranks.n * s->batches.n, MAX_ROWS);
    return TD_OK;
}

/* --- one row ---------------------------------------------------------------------------------- */

static td_status measure(void *opts, td_text *out)
{
    return td_benchmark_network(opts, out);
}

/* Create an unnamed open file that child processes inherit; the caller closes it. */
static td_status open_config(const td_benchmark_opts *o, int *fd)
{
    td_benchmark_opts copy = *o;
    td_field_group groups[] = { { "Network", td_model_fields(), &copy.model },
                                { "Data", td_input_fields(), &copy.input },
                                { "Precision", td_amp_fields(), &copy.amp },
                                { "Measurement", td_benchmark_fields(), &copy },
                                { NULL, NULL, NULL } };
    td_text yaml = { 0 };
    char path[40];
    *fd = memfd_create("tandem-config", 0);
    if (*fd < 0)
        return td_error_errno(TD_EIO, "cannot create a memory file for the ranks' options");
    td_options_yaml(groups, &yaml);
    td_status st = td_text_status(&yaml);
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    if (st == TD_OK)
        st = td_file_write(path, td_text_get(&yaml), yaml.len);
    td_text_release(&yaml);
    return st;
}

static td_status read_output(int fd, td_text *out)
{
    char path[40], *text;
    size_t n;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TD_TRY(td_file_read(path, (size_t)1 << 30, &text, &n));
    td_text_add_bytes(out, text, n > 0 && text[n - 1] == '\n' ? n - 1 : n);
    td_free(text);
    return td_text_status(out);
}

/* Run this program as several ranks; rank 0's output is the result. */
static td_status run_ranks(const td_benchmark_opts *o, int ranks, td_text *out)
{
    char config[40];
    int code = 0, config_fd = -1, result_fd = memfd_create("tandem-result", MFD_CLOEXEC);
    td_status st = TD_OK;
    if (result_fd < 0)
        return td_error_errno(TD_EIO, "cannot create a memory file for the ranks' result");
    TD_OUT(open_config(o, &config_fd));
    snprintf(config, sizeof config, "/proc/self/fd/%d", config_fd);
    const char *const args[] = { "benchmark", "--config", config, "--json" };
    const td_ranks_opts ro = { .nproc = ranks, .result_fd = result_fd, .nnodes = 1, .log = o->log };
    TD_OUT(td_ranks_run(&ro, sizeof args / sizeof *args, args, &code));
    if (code == 3 || (code != 0 && td_signal_caught()))
        st = td_error(TD_ESTOPPED, "interrupted by a signal");
    else if (code != 0)
        st = td_error(TD_EDEVICE, "a rank exited with code %d, see its message above", code);
    else
        st = read_output(result_fd, out);
out:
    if (config_fd >= 0)
        close(config_fd);
    close(result_fd);
    return st;
}

static td_status read_result(row *r)
{
    td_status st = TD_OK;
    td_json *doc;
    const char *precision;
    TD_TRY(td_json_parse(td_text_get(&r->json), r->json.len, "the result", &doc));
    const td_json *speed = td_json_get(doc, "images_per_s");
    const td_json *latency = td_json_get(doc, "latency_ms");
    const td_json *last = td_json_get(doc, "last_quarter");
    TD_OUT(td_json_text(doc, "precision", &precision));
    snprintf(r->precision_name, sizeof r->precision_name, "%s", precision);
    TD_OUT(td_json_number(speed, "median", &r->median));
    TD_OUT(td_json_number(speed, "min", &r->min));
    TD_OUT(td_json_number(speed, "max", &r->max));
    if (last)
        TD_OUT(td_json_number(last, "images_per_s", &r->last_quarter));
    TD_OUT(td_json_number(latency, "avg", &r->avg));
    TD_OUT(td_json_number(latency, "p90", &r->p90));
    TD_OUT(td_json_number(latency, "p95", &r->p95));
    TD_OUT(td_json_number(latency, "p99", &r->p99));
    TD_OUT(td_benchmark_peak(doc, &r->peak_bytes, &r->is_device_peak));
    TD_OUT(td_json_number(doc, "threads", &r->threads));
out:
    td_json_free(doc);
    return st;
}

/* A rank's share of the processors in the row with the most ranks. */
static int threads_of_rank(const sweep *s)
{
    int most = 1;
    for (int i = 0; i < s->ranks.n; i++)
        most = s->ranks.item[i] > most ? (int)s->ranks.item[i] : most;
    return td_threads() / most > 1 ? td_threads() / most : 1;
}

static td_status run_row(const sweep *s, row *r)
{
    td_benchmark_opts one = *s->o;
    char what[80];
    const char *const ranks = r->ranks > 1 ? "ranks" : "rank";
    one.batch_sizes = one.nproc = one.precisions = NULL;
    one.batch_size = r->batch;
    one.profile = NULL;
    if (s->o->precisions)
        one.amp.precision = r->precision;
    if (s->o->nproc && !one.device.threads)
        one.device.threads = threads_of_rank(s);
    int n = snprintf(what, sizeof what, "batch %d", r->batch);
    if (s->o->nproc)
        n += snprintf(what + n, sizeof what - (size_t)n, ", %d %s", r->ranks, ranks);
    if (s->o->precisions)
        snprintf(what + n, sizeof what - (size_t)n, ", %s", td_amp_precisions[r->precision]);
    td_log(TD_LOG_INFO, "benchmark", "%s", what);
    if (s->o->nproc)
        TD_TRY_MSG(run_ranks(&one, r->ranks, &r->json), "%s", what);
    else
        TD_TRY_MSG(td_child_run(measure, &one, &r->json), "%s", what);
    return read_result(r);
}

/* --- comparing rows --------------------------------------------------------------------------- */

/* The base of speedups: float32 if present, otherwise the first. */
static td_precision base_precision(const sweep *s)
{
    for (int i = 0; i < s->precisions.n; i++)
        if ((int)s->precisions.item[i] == TD_PRECISION_FP32)
            return TD_PRECISION_FP32;
    return (td_precision)(int)s->precisions.item[0];
}

/* The speed of a row; NaN: no such row. */
static double speed_of(const sweep *s, td_precision precision, int ranks, int batch)
{
    for (int i = 0; i < s->n; i++)
        if (s->rows[i].precision == precision && s->rows[i].ranks == ranks &&
            s->rows[i].batch == batch)
            return s->rows[i].median;
    return (double)NAN;
}

static void compare(sweep *s)
{
    const td_precision base = base_precision(s);
    for (int i = 0; i < s->n; i++) {
        row *r = &s->rows[i];
        r->speedup = r->median / speed_of(s, base, r->ranks, r->batch);
        r->times_one_rank = r->median / speed_of(s, r->precision, 1, r->batch);
    }
}

/* --- the table -------------------------------------------------------------------------------- */

static void add_ratio(td_text *out, int width, double x, const char *unit)
{
    if (isfinite(x))
        td_text_add(out, " %*.2f%s", width - (int)strlen(unit), x, unit);
    else
        td_text_add(out, " %*s", width, "-");
}

static void show_row(const sweep *s, const row *r, td_text *out)
{
    const bool is_training = s->o->mode == TD_BENCHMARK_TRAINING;
    td_text_add(out, "%-9s", r->precision_name);
    if (s->o->nproc)
        td_text_add(out, " %5d %7.0f", r->ranks, r->threads);
    td_text_add(out, " %7d %10.2f %10.2f %10.2f", r->batch, r->median, r->min, r->max);
    if (is_training)
        td_text_add(out, " %10.2f", r->last_quarter);
    if (s->precisions.n > 1)
        add_ratio(out, 8, r->speedup, "x");
    if (s->o->nproc) {
        add_ratio(out, 7, r->times_one_rank, "x");
        add_ratio(out, 7, r->times_one_rank / r->ranks, "");
    }
    td_text_add(out, " %9.2f %9.2f %9.2f %9.2f %9.1f\n", r->avg, r->p90, r->p95, r->p99,
                r->peak_bytes / 1e6);
}

static void show_text(const sweep *s, td_text *out)
{
    const td_benchmark_opts *o = s->o;
    const bool is_training = o->mode == TD_BENCHMARK_TRAINING;
    const int each = td_speed_line_steps(o->iters), n_lines = o->iters / each;
    td_text_add(out, "%-9s", "precision");
    if (o->nproc)
        td_text_add(out, " %5s %7s", "ranks", "threads");
    td_text_add(out, " %7s %10s %10s %10s", "batch", "images/s", "min", "max");
    td_text_add(out, "%s", is_training ? "   last 1/4" : "");
    td_text_add(out, "%s", s->precisions.n > 1 ? " speed-up" : "");
    td_text_add(out, "%s", o->nproc ? "  vs one scaling" : "");
    td_text_add(out, " %9s %9s %9s %9s %9s\n", "avg ms", "p90", "p95", "p99", "peak MB");
    for (int i = 0; i < s->n; i++)
        show_row(s, &s->rows[i], out);
    td_text_add(out,
                "\n"
                "images/s: median, slowest and fastest of %d iterations after %d of warm-up; ms: "
                "time of a step\n",
                o->iters, o->warmup);
    if (s->n > 0 && s->rows[0].is_device_peak)
        td_text_add(out, "peak MB: memory of the GPU\n");
    if (is_training)
        td_text_add(out, "last 1/4: mean of the last %d of %d speed lines, iterations a line: %d\n",
                    n_lines - n_lines * 3 / 4, n_lines, each);
    if (s->precisions.n > 1)
        td_text_add(out, "speed-up: over %s, same ranks and batch\n",
                    td_amp_precisions[base_precision(s)]);
    if (o->nproc)
        td_text_add(out, "threads, batch: per rank; vs one: speed relative to one rank; scaling: "
                         "that divided by the number of ranks\n");
}

static void show_json(const sweep *s, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "mode", s->o->mode == TD_BENCHMARK_TRAINING ? "training" : "inference");
    td_text_add(out, ", \"rows\": [");
    for (int i = 0; i < s->n; i++) {
        const row *r = &s->rows[i];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "precision", r->precision_name);
        td_json_add(out, "ranks", r->ranks);
        td_json_add(out, "threads", r->threads);
        td_json_add(out, "batch_size", r->batch);
        td_json_add(out, "images_per_s", r->median);
        td_json_add(out, "last_quarter_images_per_s", r->last_quarter);
        td_json_add(out, "speedup", r->speedup);
        td_json_add(out, "times_one_rank", r->times_one_rank);
        td_json_add(out, "scaling", r->times_one_rank / r->ranks);
        td_text_add(out, ", \"result\": %s}", td_text_get(&r->json));
    }
    td_text_add(out, "]}");
}

/* --- the sweep -------------------------------------------------------------------------------- */

static td_status run_all(sweep *s)
{
    for (int p = 0; p < s->precisions.n; p++)
        for (int k = 0; k < s->ranks.n; k++)
            for (int b = 0; b < s->batches.n; b++) {
                row *r = &s->rows[s->n++];
                *r = (row){ .precision = (td_precision)(int)s->precisions.item[p],
                            .ranks = (int)s->ranks.item[k],
                            .batch = (int)s->batches.item[b],
                            .last_quarter = (double)NAN };
                TD_TRY(run_row(s, r));
            }
    return TD_OK;
}

td_status td_benchmark_sweep(const td_benchmark_opts *o, td_text *out)
{
    td_status st = TD_OK;
    sweep s = { .o = o };
    TD_TRY(read_lists(&s));
    TD_TRY(TD_ALLOC(s.rows, (size_t)(s.precisions.n * s.ranks.n * s.batches.n)));
    TD_OUT(run_all(&s));
    compare(&s);
    if (o->as_table)
        show_text(&s, out);
    else
        show_json(&s, out);
    st = td_text_status(out);
out:
    for (int i = 0; i < s.n; i++)
        td_text_release(&s.rows[i].json);
    td_free(s.rows);
    return st;
}
