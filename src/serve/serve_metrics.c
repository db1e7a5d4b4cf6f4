/*
 * serve_metrics.c -- counters and histograms in Prometheus' text format, version 0.0.4
 */
#include "serve/serve_metrics.h"

#include "base/clock.h"
#include "base/machine.h"
#include "base/status.h"

static const double second_bounds[TD_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,  0.5,    1,     2.5,  5,     10,   30 };
static const double row_bounds[TD_BUCKETS] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256 };

void td_metrics_init(td_metrics *m)
{
    *m = (td_metrics){ 0 };
    TD_CHECK(pthread_mutex_init(&m->lock, NULL) == 0);
}

void td_metrics_release(td_metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void observe(td_histogram *h, const double *bounds, double x)
{
    int i = 0;
    while (i < TD_BUCKETS && x > bounds[i])
        i++;
    h->count[i]++;
    h->sum += x;
}

void td_metrics_answer(td_metrics *m, int status, double seconds)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < TD_CODES; i++) {
        if (m->codes[i].status && m->codes[i].status != status)
            continue;
        m->codes[i].status = status;
        m->codes[i].n++;
        break;
    }
    if (seconds >= 0)
        observe(&m->seconds, second_bounds, seconds);
    pthread_mutex_unlock(&m->lock);
}

static void add_spans(td_span_sums *sums, const td_spans *spans)
{
    sums->n++;
    sums->spans.queue_ns += spans->queue_ns;
    sums->spans.input_ns += spans->input_ns;
    sums->spans.infer_ns += spans->infer_ns;
    sums->spans.output_ns += spans->output_ns;
}

void td_metrics_batch(td_metrics *m, int rows, const td_spans *spans)
{
    pthread_mutex_lock(&m->lock);
    observe(&m->rows, row_bounds, rows);
    m->n_images += rows;
    m->n_batches++;
    add_spans(&m->batches[rows < TD_BATCH_MAX ? rows : TD_BATCH_MAX], spans);
    pthread_mutex_unlock(&m->lock);
}

void td_metrics_request(td_metrics *m, bool has_succeeded, const td_spans *spans)
{
    pthread_mutex_lock(&m->lock);
    add_spans(has_succeeded ? &m->succeeded : &m->failed, spans);
    m->last_ms = (int64_t)(td_wall_s() * 1e3);
    pthread_mutex_unlock(&m->lock);
}

/* --- the protocol's statistics ---------------------------------------------------------------- */

static void add_span(td_text *out, const char *name, int64_t n, int64_t ns)
{
    const size_t len = out->len;
    const bool is_first = len && out->data[len - 1] == '{';
    td_text_add(out, "%s\"%s\": {\"count\": %lld, \"ns\": %lld}", is_first ? "" : ", ", name,
                (long long)n, (long long)ns);
}

static int64_t total_ns(const td_spans *s)
{
    return s->queue_ns + s->input_ns + s->infer_ns + s->output_ns;
}

static void add_batches(td_text *out, const td_span_sums *batches)
{
    bool is_first = true;
    td_text_add(out, ", \"batch_stats\": [");
    for (int rows = 1; rows <= TD_BATCH_MAX; rows++) {
        const td_span_sums *b = &batches[rows];
        if (!b->n)
            continue;
        td_text_add(out, "%s{\"batch_size\": %d", is_first ? "" : ", ", rows);
        add_span(out, "compute_input", b->n, b->spans.input_ns);
        add_span(out, "compute_infer", b->n, b->spans.infer_ns);
        add_span(out, "compute_output", b->n, b->spans.output_ns);
        td_text_add(out, "}");
        is_first = false;
    }
    td_text_add(out, "]");
}

void td_metrics_statistics(td_metrics *m, const char *model, td_text *out)
{
    pthread_mutex_lock(&m->lock);
    td_metrics now = *m; /* the copy's lock is not used */
    pthread_mutex_unlock(&m->lock);
    const td_spans *s = &now.succeeded.spans;
    td_text_add(out, "{");
    td_json_add_text(out, "name", model);
    td_json_add_text(out, "version", "1");
    td_text_add(out, ", \"last_inference\": %lld, \"inference_count\": %lld, ",
                (long long)now.last_ms, (long long)now.n_images);
    td_text_add(out, "\"execution_count\": %lld, \"inference_stats\": {", (long long)now.n_batches);
    add_span(out, "success", now.succeeded.n, total_ns(s));
    add_span(out, "fail", now.failed.n, total_ns(&now.failed.spans));
    add_span(out, "queue", now.succeeded.n, s->queue_ns);
    add_span(out, "compute_input", now.succeeded.n, s->input_ns);
    add_span(out, "compute_infer", now.succeeded.n, s->infer_ns);
    add_span(out, "compute_output", now.succeeded.n, s->output_ns);
    add_span(out, "cache_hit", 0, 0);
    add_span(out, "cache_miss", 0, 0);
    td_text_add(out, "}");
    add_batches(out, now.batches);
    td_text_add(out, "}");
}

/* --- Prometheus ------------------------------------------------------------------------------- */

static void add_head(td_text *out, const char *name, const char *type, const char *help)
{
    td_text_add(out, "# HELP tandem_%s %s\n# TYPE tandem_%s %s\n", name, help, name, type);
}

static void add_histogram(td_text *out, const char *name, const char *help, const double *bounds,
                          const td_histogram *h)
{
    int64_t n = 0;
    add_head(out, name, "histogram", help);
    for (int i = 0; i < TD_BUCKETS; i++) {
        n += h->count[i];
        td_text_add(out, "tandem_%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], (long long)n);
    }
    n += h->count[TD_BUCKETS];
    td_text_add(out,
                "tandem_%s_bucket{le=\"+Inf\"} %lld\ntandem_%s_sum %.9g\ntandem_%s_count %lld\n",
                name, (long long)n, name, h->sum, name, (long long)n);
}

static void add_gauge(td_text *out, const char *name, const char *help, double value)
{
    add_head(out, name, "gauge", help);
    td_text_add(out, "tandem_%s %.15g\n", name, value);
}

void td_metrics_print(td_metrics *m, const char *model, int queue, int connections, td_text *out)
{
    pthread_mutex_lock(&m->lock);
    td_metrics now = *m; /* the copy's lock is not used */
    pthread_mutex_unlock(&m->lock);
    add_head(out, "info", "gauge", "What is served.");
    td_text_add(out, "tandem_info{version=\"%s\",model=\"%s\"} 1\n", td_version(), model);
    add_head(out, "requests_total", "counter", "Answers by status code.");
    for (int i = 0; i < TD_CODES && now.codes[i].status; i++)
        td_text_add(out, "tandem_requests_total{code=\"%d\"} %lld\n", now.codes[i].status,
                    (long long)now.codes[i].n);
    add_head(out, "images_total", "counter", "Images computed.");
    td_text_add(out, "tandem_images_total %lld\n", (long long)now.n_images);
    add_histogram(out, "request_seconds", "From a request's headers to its answer.", second_bounds,
                  &now.seconds);
    add_histogram(out, "batch_rows", "Images computed together.", row_bounds, &now.rows);
    add_gauge(out, "queue_length", "Requests received and not yet answered.", queue);
    add_gauge(out, "connections", "Open connections.", connections);
    add_gauge(out, "resident_bytes", "Memory that the process holds.",
              (double)td_memory_now_bytes());
}
