/*
 * doctor.c -- what this machine offers, and how fast it is
 *
 * The speeds are measured through compiled programs, the way training reaches the kernels: a matrix
 * product and a 3x3 convolution of ResNet-50's third stage, best of several runs.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/os.h"
#include "base/text.h"
#include "pass/amp.h"
#include "rt/device.h"
#include "tandem/program.h"
#include "tandem/train.h"

#define MEASURE_NS   (int64_t)300000000 /* for each of the two */
#define MEASURE_RUNS 5                  /* at least so many */
#define INPUT_MAX    (1 << 20)          /* elements of either input, at most */

/* rows of the report: a name, and a text or a number */
typedef struct {
    bool json;
    td_text *out;
} report;

static void row_text(report *r, const char *name, const char *value)
{
    if (r->json)
        td_json_add_text(r->out, name, value);
    else
        td_text_add(r->out, "%-24s %s\n", name, value);
}

static void row_number(report *r, const char *name, double value)
{
    if (r->json)
        td_json_add(r->out, name, value);
    else
        td_text_add(r->out, "%-24s %.10g\n", name, value);
}

/* --- machine ---------------------------------------------------------------------------------- */

static void add_machine(report *r)
{
    struct statvfs disk;
    const char *isa = td_cpu_isa();
    bool has_bf16 = strstr(isa, "bf16") != NULL || strstr(isa, "amx") != NULL;
    const char *spin = getenv("GOMP_SPINCOUNT"), *wait = getenv("OMP_WAIT_POLICY");
    row_text(r, "tandem", td_version());
    row_text(r, "processor", td_cpu_name());
    row_text(r, "instruction_set", isa);
    row_text(r, "half_types", has_bf16 ? "bf16 in hardware" : "none in hardware");
    row_number(r, "processors", td_cpu_count());
    row_number(r, "threads", td_threads());
    row_text(r, "wait_policy",
             wait   ? wait
             : spin ? "spin for a moment, then sleep"
                    : "the runtime's");
    row_number(r, "memory_gb", (double)(td_memory_total_bytes() / 10000000) / 100);
    if (statvfs(".", &disk) == 0)
        row_number(r, "disk_free_gb",
                   (double)((int64_t)((double)disk.f_bavail * (double)disk.f_frsize / 1e7)) / 100);
}

static void add_backends(report *r)
{
    const td_backend *b;
    if (r->json)
        td_text_add(r->out, ", \"backends\": [");
    for (int i = 0; (b = td_backend_at(i)); i++) {
        td_text library = { 0 };
        if (b->describe)
            b->describe(&library);
        size_t n = strcspn(td_text_get(&library), "\n");
        if (r->json) {
            td_text_add(r->out, i ? ", {" : "{");
            td_json_add_text(r->out, "name", b->name);
            td_json_add_text(r->out, "summary", b->description);
            td_json_add_text(r->out, "library", library.len ? td_text_get(&library) : NULL);
            td_text_add(r->out, "}");
        } else {
            td_text_add(r->out, "%s%-*s %s%s%.*s\n", "backend ", 16, b->name, b->description,
                        n ? "; " : "", (int)n, td_text_get(&library));
        }
        td_text_release(&library);
    }
    if (r->json)
        td_text_add(r->out, "]");
}

/* --- speed ------------------------------------------------------------------------------------ */

/* an input, not a parameter: what depends on parameters alone runs only once */
static td_value *product(td_builder *b)
{
    td_value *x = td_input(b, "x", td_type_2d(TD_DT_F32, 1024, 1024));
    td_value *w = td_param(b, "w", TD_DT_F32, 2, (int64_t[]){ 1024, 1024 }, "init=uniform");
    return td_linear(b, x, w, NULL);
}

static td_value *convolution(td_builder *b)
{
    td_value *x = td_input(b, "x", td_type_4d(TD_DT_F32, 16, 256, 14, 14));
    td_value *w = td_param(b, "w", TD_DT_F32, 4, (int64_t[]){ 256, 256, 3, 3 }, "init=uniform");
    return td_conv2d(b, x, w, "pad=1");
}

static td_status best_run(td_program *p, double *seconds)
{
    int64_t start = td_now_ns();
    *seconds = 1e30;
    TD_TRY(td_program_run(p)); /* not counted: weights settle into their layout */
    for (int i = 0; i < MEASURE_RUNS || td_now_ns() - start < MEASURE_NS; i++) {
        int64_t before = td_now_ns();
        TD_TRY(td_program_run(p));
        double s = (double)(td_now_ns() - before) / 1e9;
        *seconds = s < *seconds ? s : *seconds;
    }
    return TD_OK;
}

/* float32 GFLOP/s of one op on the device "cpu" */
static td_status measure(td_value *(*op)(td_builder *b), double *gflops)
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    float *x = NULL;
    td_status st;
    double seconds;
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    td_builder *b = td_build_begin();
    if (!b)
        return TD_ENOMEM;
    td_output(b, "y", op(b));
    TD_OUT(td_build_end(b, &g));
    TD_OUT(td_device_open("cpu", &dev));
    TD_OUT(td_compile(g, dev, &(td_compile_opts){ .amp = &float32 }, &p));
    TD_OUT(td_program_init(p, 1));
    x = td_alloc(INPUT_MAX, sizeof *x);
    TD_OUT(x ? TD_OK : TD_ENOMEM);
    for (int i = 0; i < INPUT_MAX; i++)
        x[i] = (float)(i % 7) - 3;
    TD_OUT(td_program_bind(p, "x", x));
    TD_OUT(best_run(p, &seconds));
    *gflops = 2 * (double)td_graph_macs(g) / seconds / 1e9;
out:
    td_program_free(p);
    td_free(x);
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

static td_status add_speed(report *r)
{
    double product_gflops, convolution_gflops;
    TD_TRY_MSG(measure(product, &product_gflops), "measuring a matrix product");
    TD_TRY_MSG(measure(convolution, &convolution_gflops), "measuring a convolution");
    row_number(r, "matrix_product_gflops", (double)(int64_t)product_gflops);
    row_number(r, "convolution_gflops", (double)(int64_t)convolution_gflops);
    return TD_OK;
}

td_status td_doctor(bool json, char **text)
{
    td_text out = { 0 };
    report r = { .json = json, .out = &out };
    *text = NULL;
    td_set_threads(0);
    td_text_add(&out, json ? "{" : "");
    add_machine(&r);
    add_backends(&r);
    const td_status st = add_speed(&r);
    td_text_add(&out, json ? "}\n" : "");
    return td_text_take(&out, st, text);
}
