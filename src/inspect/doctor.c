/*
 * doctor.c -- tandem doctor: reports the machine's features and speed
 *
 * The speeds are measured with compiled programs, as in training, the best of several runs: a
 * matrix product and a 3x3 convolution of ResNet-50's third stage for arithmetic, a test for
 * finiteness and a relu of one of its larger tensors for reading and copying memory.  Last comes
 * how long two cores take to exchange a value.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/isa.h"
#include "base/machine.h"
#include "base/plugin.h"
#include "base/text.h"
#include "device/gpu_plugin.h"
#include "inspect/core_to_core.h"
#include "ops/ops.h"
#include "pass/amp.h"
#include "runtime/device.h"
#include "runtime/process.h"
#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"
#include "tandem/loader.h"
#include "tandem/program.h"

#define MEASURE_NS   (int64_t)300000000            /* duration of each measurement */
#define MEASURE_RUNS 5                             /* least number of runs */
#define STREAM       (INT64_C(32) * 256 * 56 * 56) /* elements, 103 MB: beyond most caches */

/* Rows of the report: a name, and a text or a number. */
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
    const bool has_bf16 = td_isa_has(TD_ISA_AVX512_BF16);
    const char *spin = getenv("GOMP_SPINCOUNT"), *wait = getenv("OMP_WAIT_POLICY");
    row_text(r, "tandem", td_version());
    row_text(r, "processor", td_cpu_name());
    row_text(r, "instruction_set", td_isa_name(td_isa_best()));
    row_text(r, "half_types", has_bf16 ? "bf16 in hardware" : "none in hardware");
    row_number(r, "processors", td_cpu_count());
    row_number(r, "threads", td_threads());
    row_number(r, "loader_workers", td_loader_workers(td_cpu_count(), td_core_count()));
    row_text(r, "threads_bound", td_threads_are_bound() ? "to cores" : "no");
    row_text(r, "wait_policy",
             wait   ? wait
             : spin ? "spin for a moment, then sleep"
                    : "the runtime's");
    row_number(r, "memory_gb", (double)(td_memory_total_bytes() / 10000000) / 100);
    if (statvfs(".", &disk) == 0)
        row_number(r, "disk_free_gb",
                   (double)((int64_t)((double)disk.f_bavail * (double)disk.f_frsize / 1e7)) / 100);
}

/* --- ranks ------------------------------------------------------------------------------------ */

/* "2 ranks, numa: 0-7 | 8-15" */
static td_status describe_binding(const td_topology *t, int n_ranks, td_text *out)
{
    td_affinity mode;
    td_binding b;
    char list[TD_CPU_LIST_BYTES];
    TD_TRY(td_affinity_resolve(t, TD_AFFINITY_AUTO, n_ranks, &mode));
    td_text_add(out, "%d ranks, ", n_ranks);
    td_affinity_name(mode, out);
    for (int i = 0; i < n_ranks; i++) {
        TD_TRY(td_affinity_choose(t, mode, i, n_ranks, &b));
        td_binding_list(&b, list);
        td_text_add(out, "%s%s", i ? " | " : ": ", list);
    }
    return td_text_status(out);
}

/* the parts of the machine, and the default binding of a rank per NUMA node, or of two ranks */
static td_status add_topology(report *r)
{
    td_topology t;
    td_text binding = { 0 };
    TD_TRY(td_topology_here(&t));
    const int n_nodes = td_topology_count(&t, TD_LEVEL_NUMA_NODE);
    row_number(r, "packages", td_topology_count(&t, TD_LEVEL_PACKAGE));
    row_number(r, "numa_nodes", n_nodes);
    row_number(r, "l3_caches", td_topology_count(&t, TD_LEVEL_L3_CACHE));
    row_number(r, "cores", td_topology_count(&t, TD_LEVEL_CORE));
    td_status st = describe_binding(&t, n_nodes > 1 ? n_nodes : 2, &binding);
    if (st == TD_OK && td_topology_require_here(&t) == TD_OK)
        row_text(r, "binding", td_text_get(&binding));
    else if (st == TD_OK)
        row_text(r, "binding", td_error_message());
    td_text_release(&binding);
    td_topology_release(&t);
    return st;
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

/* --- GPUs ------------------------------------------------------------------------------------- */

/* "580.65.06", or "" where the kernel has no NVIDIA driver */
static void driver_version(char text[32])
{
    FILE *f = fopen("/sys/module/nvidia/version", "r");
    if (!f || !fgets(text, 32, f))
        *text = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (f)
        (void)fclose(f);
}

static void add_driver(report *r, const td_gpu_survey *s)
{
    char version[32], text[128];
    driver_version(version);
    if (s->driver_cuda)
        snprintf(text, sizeof text, "%s%sCUDA %d.%d; the plug-in has CUDA %d.%d", version,
                 *version ? ", " : "", s->driver_cuda / 1000, s->driver_cuda % 1000 / 10,
                 s->runtime_cuda / 1000, s->runtime_cuda % 1000 / 10);
    else
        snprintf(text, sizeof text, "none");
    row_text(r, "nvidia_driver", text);
}

static void add_gpus(report *r)
{
    char path[TD_PLUGIN_PATH_BYTES], name[32], text[384];
    td_gpu_survey s;
    if (td_gpu_look(&s, path) != TD_OK) {
        row_text(r, "cuda_plugin", td_error_message());
        return;
    }
    row_text(r, "cuda_plugin", path);
    add_driver(r, &s);
    for (int i = 0; i < s.n_gpus && i < TD_GPU_SURVEYED; i++) {
        const td_gpu_info *g = &s.gpus[i];
        snprintf(name, sizeof name, "gpu_%d", i);
        snprintf(text, sizeof text, "%s, compute capability %d.%d, %.1f GB", g->name, g->major,
                 g->minor, 1e-9 * (double)g->bytes);
        row_text(r, name, text);
    }
    if (*s.why_not)
        row_text(r, "gpu", s.why_not);
    row_text(r, "cudnn", s.cudnn);
    row_text(r, "cublaslt", s.cublaslt);
    row_text(r, "nccl", s.nccl);
}

/* --- speed ------------------------------------------------------------------------------------ */

/* The operand is an input, not a parameter: nodes that depend only on parameters run once. */
static td_value *product(td_builder *b, td_dtype t)
{
    td_value *x = td_input(b, "x", td_type_2d(t, 1024, 1024));
    td_value *w = td_param(b, "w", t, 2, (int64_t[]){ 1024, 1024 }, "init=uniform");
    return td_linear(b, x, w, NULL);
}

static td_value *convolution(td_builder *b, td_dtype t)
{
    td_value *x = td_input(b, "x", td_type_4d(t, 16, 256, 14, 14));
    td_value *w = td_param(b, "w", t, 4, (int64_t[]){ 256, 256, 3, 3 }, "init=uniform");
    return td_conv2d(b, x, w, "pad=1");
}

static td_value *stream(td_builder *b, td_dtype t)
{
    return td_input(b, "x", td_type_4d(t, 32, 256, 56, 56));
}

static td_value *reading(td_builder *b, td_dtype t)
{
    return td_emit(b, &td_op_all_finite, NULL, stream(b, t));
}

static td_value *copying(td_builder *b, td_dtype t)
{
    return td_relu(b, stream(b, t));
}

static td_status best_run(td_program *p, double *seconds)
{
    int64_t start = td_now_ns();
    *seconds = 1e30;
    TD_TRY(td_program_run(p)); /* not counted: reorders the weights */
    for (int i = 0; i < MEASURE_RUNS || td_now_ns() - start < MEASURE_NS; i++) {
        int64_t before = td_now_ns();
        TD_TRY(td_program_run(p));
        double s = (double)(td_now_ns() - before) / 1e9;
        *seconds = s < *seconds ? s : *seconds;
    }
    return TD_OK;
}

/* An op with one input; `bytes` that it moves per run, or 0 to count its arithmetic. */
typedef struct {
    const char *name;
    td_value *(*op)(td_builder *b, td_dtype t);
    td_dtype dtype;
    double bytes;
} speed;

static td_status build(const speed *v, td_graph **out)
{
    td_builder *b = td_build_begin();
    if (!b)
        return TD_ENOMEM;
    td_output(b, "y", v->op(b, v->dtype));
    return td_build_end(b, out);
}

/* Measure 10^9 operations or bytes per second on the device "cpu"; x: values for any input. */
static td_status measure(const speed *v, const float *x, double *giga_per_s)
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_status st;
    double seconds;
    const td_amp_opts amp = { .precision = TD_PRECISION_FP32 }; /* keep the dtypes */
    TD_OUT(build(v, &g));
    TD_OUT(td_device_open("cpu", &dev));
    TD_OUT(td_compile(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    TD_OUT(td_program_init(p, 1));
    TD_OUT(td_program_bind(p, "x", x));
    TD_OUT(best_run(p, &seconds));
    *giga_per_s = (v->bytes > 0 ? v->bytes : 2 * (double)td_graph_macs(g)) / seconds / 1e9;
out:
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

/* whole numbers, or tenths below 10; a machine under load may be slower than 1 GB/s */
static double rounded(double value)
{
    const double tenths = (double)(int64_t)(value * 10 + 0.5);
    return tenths < 100 ? tenths / 10 : (double)(int64_t)value;
}

static td_status add_speed(report *r)
{
    static const speed speeds[] = {
        { "matrix_product_gflops", product, TD_DT_F32, 0 },
        { "convolution_gflops", convolution, TD_DT_F32, 0 },
        { "bf16_product_gflops", product, TD_DT_BF16, 0 },
        { "bf16_convolution_gflops", convolution, TD_DT_BF16, 0 },
        { "memory_read_gbs", reading, TD_DT_F32, 4 * (double)STREAM },
        { "memory_copy_gbs", copying, TD_DT_F32, 8 * (double)STREAM },
    };
    float *x = td_pages_alloc((size_t)STREAM * sizeof *x);
    td_status st = x ? TD_OK : TD_ENOMEM;
    for (int64_t i = 0; x && i < STREAM; i++)
        x[i] = (float)(i % 7) - 3;
    for (size_t i = 0; st == TD_OK && i < sizeof speeds / sizeof *speeds; i++) {
        double giga_per_s;
        st = measure(&speeds[i], x, &giga_per_s);
        if (st == TD_OK)
            row_number(r, speeds[i].name, rounded(giga_per_s));
        else
            st = td_error_context(st, "measuring %s", speeds[i].name);
    }
    const double ns = td_core_to_core_ns();
    if (st == TD_OK && ns > 0)
        row_number(r, "core_to_core_ns", rounded(ns));
    td_pages_free(x, (size_t)STREAM * sizeof *x);
    return st;
}

td_status td_doctor(bool json, char **text)
{
    td_text out = { 0 };
    report r = { .json = json, .out = &out };
    *text = NULL;
    td_set_threads(0);
    td_text_add(&out, json ? "{" : "");
    add_machine(&r);
    td_status st = add_topology(&r);
    add_gpus(&r);
    add_backends(&r);
    if (st == TD_OK)
        st = add_speed(&r);
    td_text_add(&out, json ? "}\n" : "");
    return td_text_take(&out, st, text);
}
