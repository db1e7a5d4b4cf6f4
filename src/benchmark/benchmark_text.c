/*
 * benchmark_text.c -- prints a benchmark's JSON object as lines and tables with units
 *
 * The JSON text is parsed again, so that both forms have the same numbers.
 */
#include "benchmark/benchmark_text.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* --- members ---------------------------------------------------------------------------------- */

/* A number; NaN: absent or null. */
static double number(const td_json *object, const char *name)
{
    double x;
    const td_json *j = object ? td_json_get(object, name) : NULL;
    if (!j || (td_json_kind_of(j) != TD_JSON_INT && td_json_kind_of(j) != TD_JSON_REAL))
        return (double)NAN;
    return td_json_as_number(j, &x) == TD_OK ? x : (double)NAN;
}

static bool has(const td_json *object, const char *name)
{
    return !isnan(number(object, name));
}

/* A text; "": absent or another type. */
static const char *word(const td_json *object, const char *name)
{
    const char *text;
    const td_json *j = td_json_get(object, name);
    if (!j || td_json_kind_of(j) != TD_JSON_TEXT)
        return "";
    return td_json_as_text(j, &text) == TD_OK ? text : "";
}

/* Add a line, "boxes           0.31 ms", if the member exists. */
static void add_line(const td_json *object, const char *name, const char *title, const char *unit,
                     td_text *out)
{
    if (has(object, name))
        td_text_add(out, "%-15s %.2f %s\n", title, number(object, name), unit);
}

/* --- one network ------------------------------------------------------------------------------ */

static void add_setup(const td_json *doc, td_text *out)
{
    const double ranks = number(doc, "ranks"), threads = number(doc, "threads");
    const double batch = number(doc, "batch_size"), size = number(doc, "image_size");
    const char *backbone = word(doc, "backbone");
    td_text_add(out, "%-15s %s%s%s, %s, %s\n", "network", word(doc, "arch"), *backbone ? ", " : "",
                backbone, word(doc, "mode"), word(doc, "precision"));
    td_text_add(out, "%-15s %.0f image%s of %.0f x %.0f", "batch", batch, batch == 1 ? "" : "s",
                size, size);
    if (ranks > 1)
        td_text_add(out, " on each of %.0f ranks", ranks);
    if (has(doc, "micro_batch_size"))
        td_text_add(out, ", computed in micro-batches of %.0f", number(doc, "micro_batch_size"));
    td_text_add(out, "\n");
    td_text_add(out, "%-15s %.0f%s\n", "threads", threads, ranks > 1 ? " on each rank" : "");
    td_text_add(out, "%-15s %.0f, after %.0f to warm up\n", "iterations", number(doc, "iters"),
                number(doc, "warmup"));
}

static void add_speed(const td_json *doc, td_text *out)
{
    const td_json *speed = td_json_get(doc, "images_per_s"), *ms = td_json_get(doc, "latency_ms");
    const td_json *last = td_json_get(doc, "last_quarter");
    td_text_add(out, "\n%-15s %10s %10s %10s %10s %10s %10s\n", "", "median", "average", "p90",
                "p95", "p99", "max");
    td_text_add(out, "%-15s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n\n", "ms per batch",
                number(ms, "p50"), number(ms, "avg"), number(ms, "p90"), number(ms, "p95"),
                number(ms, "p99"), number(ms, "max"));
    td_text_add(out, "%-15s %.2f at the median, %.2f to %.2f\n", "images/s",
                number(speed, "median"), number(speed, "min"), number(speed, "max"));
    if (last)
        td_text_add(out, "%-15s %.2f images/s: mean of the last %.0f of %.0f progress lines\n",
                    "last quarter", number(last, "images_per_s"), number(last, "lines_kept"),
                    number(last, "lines"));
    add_line(doc, "bound_images_per_s", "bound",
             "images/s: the machine's limit for direct convolutions and matrix products", out);
    add_line(doc, "chosen_bound_images_per_s", "chosen bound",
             "images/s: the same for the algorithms of this program", out);
    add_line(doc, "boxes_ms", "boxes", "ms per batch", out);
    add_line(doc, "time_to_first_step_s", "first step", "s after the start", out);
}

static double megabytes(const td_json *doc, const char *name)
{
    return number(doc, name) / 1e6;
}

static void add_memory(const td_json *doc, td_text *out)
{
    const bool has_device = has(doc, "device_peak_memory_bytes");
    td_text_add(out, "%-15s %.1f MB at the peak\n", has_device ? "host memory" : "memory",
                megabytes(doc, "peak_memory_bytes"));
    if (has_device)
        td_text_add(out,
                    "%-15s %.1f MB at the peak, %.1f at the end, and %.1f of CUDA, its libraries "
                    "and other processes; %.1f in all\n",
                    "device memory", megabytes(doc, "device_peak_memory_bytes"),
                    megabytes(doc, "device_memory_bytes"),
                    megabytes(doc, "device_other_memory_bytes"),
                    megabytes(doc, "device_total_memory_bytes"));
    td_text_add(out, "%-15s %.1f MB: parameters %.1f, activations %.1f", "planned memory",
                megabytes(doc, "planned_memory_bytes"), megabytes(doc, "planned_parameter_bytes"),
                megabytes(doc, "planned_activation_bytes"));
    if (has_device)
        td_text_add(out, ", of these the largest workspace %.1f",
                    megabytes(doc, "planned_workspace_bytes"));
    td_text_add(out, "\n");
    if (has(doc, "recomputed_results"))
        td_text_add(out, "%-15s %.0f results, %.3f GMAC; %.1f MB without the limit\n", "recomputed",
                    number(doc, "recomputed_results"), number(doc, "recomputed_macs") * 1e-9,
                    megabytes(doc, "unlimited_memory_bytes"));
}

static void add_kernels(const td_json *doc, td_text *out)
{
    const td_json *kernels = td_json_get(doc, "kernels");
    if (!kernels)
        return;
    td_text_add(out, "\n%10s %10s  %-28s %-26s %s\n", "ms", "GMAC", "node", "op", "kernel");
    for (size_t i = 0; i < td_json_count(kernels); i++) {
        const td_json *k = td_json_at(kernels, i);
        td_text_add(out, "%10.4f %10.4f  %-28s %-26s %s%s%s\n", number(k, "ms"), number(k, "gmac"),
                    word(k, "label"), word(k, "op"), word(k, "kernel"), *word(k, "impl") ? " " : "",
                    word(k, "impl"));
    }
}

static void add_network(const td_json *doc, td_text *out)
{
    const td_json *data = td_json_get(doc, "data");
    add_setup(doc, out);
    if (data)
        td_text_add(out, "%-15s %s, %.0f images, %.3f ms of waiting per batch\n", "data",
                    word(data, "path"), number(data, "images"), number(data, "wait_ms"));
    add_speed(doc, out);
    add_memory(doc, out);
    add_kernels(doc, out);
}

/* --- the others ------------------------------------------------------------------------------- */

static void add_data(const td_json *doc, td_text *out)
{
    const td_json *speed = td_json_get(doc, "images_per_s");
    td_text_add(out, "%-15s %.0f, decoded and cropped to %.0f x %.0f\n", "images",
                number(doc, "n_images"), number(doc, "image_size"), number(doc, "image_size"));
    td_text_add(out, "%-15s %.0f\n", "threads", number(doc, "threads"));
    td_text_add(out, "%-15s %.2f median, %.2f to %.2f\n", "images/s", number(speed, "median"),
                number(speed, "min"), number(speed, "max"));
}

static void add_ops(const td_json *doc, td_text *out)
{
    const td_json *results = td_json_get(doc, "results");
    td_text_add(out, "%-15s %.0f\n\n%10s %10s  %-18s %-36s %s\n", "threads", number(doc, "threads"),
                "ms", "GFLOP/s", "op", "kernel", "line");
    for (size_t i = 0; i < td_json_count(results); i++) {
        const td_json *r = td_json_at(results, i);
        td_text kernel = { 0 };
        td_text_add(&kernel, "%s%s%s", word(r, "kernel"), *word(r, "impl") ? " " : "",
                    word(r, "impl"));
        td_text_add(out, "%10.4f", number(r, "ms"));
        if (has(r, "gflops"))
            td_text_add(out, " %10.2f", number(r, "gflops"));
        else
            td_text_add(out, " %10s", "-");
        td_text_add(out, "  %-18s %-36s %s\n", word(r, "op"), td_text_get(&kernel),
                    word(r, "line"));
        td_text_release(&kernel);
    }
}

static void add_sums(const td_json *doc, td_text *out)
{
    const td_json *sums = td_json_get(doc, "sums");
    td_text_add(out, "%-15s %.0f, %.0f of them on this machine\n", "ranks", number(doc, "ranks"),
                number(doc, "local_ranks"));
    if (*word(doc, "summed_by"))
        td_text_add(out, "%-15s %s, %s\n", "sums by", word(doc, "summed_by"), word(doc, "device"));
    td_text_add(out, "%-15s %.0f of each size\n\n%12s %12s %12s %12s %12s\n", "iterations",
                number(doc, "iters"), "bytes", "median ms", "min ms", "max ms", "GB/s");
    for (size_t i = 0; i < td_json_count(sums); i++) {
        const td_json *s = td_json_at(sums, i), *ms = td_json_get(s, "ms");
        td_text_add(out, "%12.0f %12.4f %12.4f %12.4f %12.3f\n", number(s, "bytes"),
                    number(ms, "median"), number(ms, "min"), number(ms, "max"),
                    number(s, "gb_per_s"));
    }
}

static void add_link(const td_json *link, td_text *out)
{
    if (has(link, "gbit_per_s"))
        td_text_add(out, "%.4g Gbit/s, ", number(link, "gbit_per_s"));
    td_text_add(out, "%.1f us", number(link, "latency_us"));
}

static void add_comparison(const td_json *doc, td_text *out)
{
    const td_json *m = td_json_get(doc, "measured");
    if (!m)
        return;
    td_text_add(out, "%-15s %.0f on %.0f machine%s, ", "ranks", number(m, "ranks"),
                number(m, "machines"), number(m, "machines") == 1 ? "" : "s");
    add_link(m, out);
    td_text_add(out, "\n%-15s %.2f ms, predicted %.2f ms (%+.1f %%)\n", "step",
                number(m, "step_ms"), number(m, "predicted_ms"), number(m, "error") * 100);
}

static void add_scaling(const td_json *doc, td_text *out)
{
    const td_json *links = td_json_get(doc, "links");
    add_setup(doc, out);
    td_text_add(out, "%-15s %.2f ms\n", "computation", number(doc, "compute_ms"));
    td_text_add(out, "%-15s %.0f bytes in %.0f sums\n", "gradients", number(doc, "gradient_bytes"),
                number(doc, "buckets"));
    add_comparison(doc, out);
    for (size_t i = 0; i < td_json_count(links); i++) {
        const td_json *link = td_json_at(links, i), *rows = td_json_get(link, "rows");
        td_text_add(out, "\nlink of a machine: ");
        add_link(link, out);
        td_text_add(out, "\n%8s %8s %12s %12s %12s %10s\n", "ranks", "machines", "step ms",
                    "waiting ms", "images/s", "efficiency");
        for (size_t k = 0; k < td_json_count(rows); k++) {
            const td_json *r = td_json_at(rows, k);
            td_text_add(out, "%8.0f %8.0f %12.2f %12.2f %12.1f %10.3f\n", number(r, "ranks"),
                        number(r, "machines"), number(r, "step_ms"), number(r, "waiting_ms"),
                        number(r, "images_per_s"), number(r, "efficiency"));
        }
    }
}

td_status td_benchmark_peak(const td_json *doc, double *bytes, bool *of_device)
{
    *of_device = has(doc, "device_peak_memory_bytes");
    return td_json_number(doc, *of_device ? "device_peak_memory_bytes" : "peak_memory_bytes",
                          bytes);
}

/* --- any benchmark ---------------------------------------------------------------------------- */

td_status td_benchmark_text(const char *json, td_text *out)
{
    td_json *doc;
    TD_TRY(td_json_parse(json, strlen(json), "the benchmark's result", &doc));
    const char *mode = word(doc, "mode");
    if (strcmp(mode, "data") == 0)
        add_data(doc, out);
    else if (strcmp(mode, "op") == 0)
        add_ops(doc, out);
    else if (strcmp(mode, "allreduce") == 0)
        add_sums(doc, out);
    else if (strcmp(mode, "scaling") == 0)
        add_scaling(doc, out);
    else
        add_network(doc, out);
    td_json_free(doc);
    return td_text_status(out);
}
