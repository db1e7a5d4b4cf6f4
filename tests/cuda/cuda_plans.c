/*
 * cuda_plans.c -- prints what cuDNN plans for networks on a device that need not be here
 *
 *   cuda_plans DEVICE.json PRECISION ARCH...    fp16, bf16, tf32 or fp32
 *   cuda_plans DEVICE.json inference PRECISION ARCH...    its inference graphs, all of one type
 *   cuda_plans DEVICE.json fusions              what might be fused, in f16 and bf16
 *   cuda_plans DEVICE.json norms PRECISION ARCH...    what pass norms asks, and what it then fuses
 *
 * Takes the convolutions of each network's inference graph and training graph, batch 32, after all
 * passes.  One line for each distinct problem, under the first network that has it:
 *
 *   filter_gradient x=32x64x56x56 w=256x64x1x1: engine 7, workspace 4096
 *
 * CUDA_PLANS_VERBOSE=1 also prints knobs and refused engines.  Float32 results and biases of half
 * problems have kernels that cuDNN compiles for a second each: they are planned for the first
 * network in fp16, otherwise the problem with all tensors of the storage type.  Exits with 1 if
 * such a problem of a network has no plan, or if a network's norms are all unfused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn_graph.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "pass/pass.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

enum { BATCH = 32, JSON_BYTES = 1 << 14, SEEN_MAX = 1024 };

static const struct {
    const char *name;
    td_precision precision;
    td_cudnn_dtype dtype;
    bool allow_tf32;
} precisions[] = {
    { "fp16", TD_PRECISION_FP16, TD_CUDNN_F16, false },
    { "bf16", TD_PRECISION_BF16, TD_CUDNN_BF16, false },
    { "tf32", TD_PRECISION_FP32, TD_CUDNN_F32, true },
    { "fp32", TD_PRECISION_FP32, TD_CUDNN_F32, false },
};

static const struct {
    const char *name;
    td_cudnn_direction direction;
    unsigned fused;
} fusions[] = {
    { "statistics", TD_CUDNN_FORWARD, TD_CUDNN_STATISTICS },
    { "scale_relu+statistics", TD_CUDNN_FORWARD, TD_CUDNN_SCALE_RELU | TD_CUDNN_STATISTICS },
    { "scale_relu", TD_CUDNN_FORWARD, TD_CUDNN_SCALE_RELU },
    { "bias+relu", TD_CUDNN_FORWARD, TD_CUDNN_BIAS | TD_CUDNN_RELU },
    { "bias+add+relu", TD_CUDNN_FORWARD, TD_CUDNN_BIAS | TD_CUDNN_ADD | TD_CUDNN_RELU },
    { "bias+relu6", TD_CUDNN_FORWARD, TD_CUDNN_BIAS | TD_CUDNN_RELU | TD_CUDNN_CLIP_6 },
    { "scale_relu", TD_CUDNN_FILTER_GRADIENT, TD_CUDNN_SCALE_RELU },
    { "relu_backward", TD_CUDNN_DATA_GRADIENT, TD_CUDNN_RELU_BACKWARD },
    { "scale+relu_backward", TD_CUDNN_DATA_GRADIENT, TD_CUDNN_RELU_BACKWARD | TD_CUDNN_SCALE_RELU },
};

static char json[JSON_BYTES];
static td_cudnn_conv seen[SEEN_MAX];
static bool seen_planned[SEEN_MAX];
static int n_seen, n_problems, n_planned;
static bool is_verbose, without_fallback;

/* --- lines ------------------------------------------------------------------------------------ */

static void print_fused(const td_cudnn_conv *v)
{
    static const struct {
        unsigned bit;
        const char *name;
    } parts[] = { { TD_CUDNN_SCALE_RELU, "scale_relu" },
                  { TD_CUDNN_BIAS, "bias" },
                  { TD_CUDNN_ADD, "add" },
                  { TD_CUDNN_RELU, "relu" },
                  { TD_CUDNN_CLIP_6, "clip_6" },
                  { TD_CUDNN_STATISTICS, "statistics" },
                  { TD_CUDNN_RELU_BACKWARD, "relu_backward" } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (v->fused & parts[i].bit)
            printf(" +%s", parts[i].name);
    printf("%s%s", v->wide_vectors ? " (float32 vectors)" : "",
           v->wide_filter ? " (float32 filter)" : "");
}

static void print_problem(const td_cudnn_conv *v)
{
    static const char *const dtypes[] = { "f16", "bf16", "f32" };
    static const char *const directions[] = { "forward", "data_gradient", "filter_gradient" };
    printf("%s %s", v->allow_tf32 ? "tf32" : dtypes[v->dtype], directions[v->direction]);
    print_fused(v);
    printf(" x=%lldx%lldx%lldx%lld w=%lldx%lldx%lldx%lld", (long long)v->n, (long long)v->c,
           (long long)v->h, (long long)v->w, (long long)v->k, (long long)(v->c / v->groups),
           (long long)v->r, (long long)v->s);
    if (v->stride[0] > 1)
        printf(" stride=%lld", (long long)v->stride[0]);
    if (v->pad_before[0] || v->pad_after[0])
        printf(" pad=%lld", (long long)v->pad_before[0]);
    if (v->pad_after[0] != v->pad_before[0])
        printf("+%lld", (long long)(v->pad_after[0] - v->pad_before[0]));
    if (v->dilation[0] > 1)
        printf(" dilation=%lld", (long long)v->dilation[0]);
    if (v->groups > 1)
        printf(" groups=%lld", (long long)v->groups);
}

static void print_details(const td_cudnn_plan *plan, bool is_planned)
{
    for (int i = 0; i < plan->n_refusals; i++)
        printf("    refused: engine %lld (%s): %s\n", (long long)plan->refusals[i].engine,
               plan->refusals[i].knobs, plan->refusals[i].why);
    if (is_planned)
        printf("    %s; %d offered, %d refused\n", plan->knobs, plan->n_offered, plan->n_refused);
}

static bool print_plan(const td_cudnn_conv *v)
{
    static td_cudnn_plan plan;
    char error[TD_CUDNN_TEXT];
    const td_cudnn_target target = {
        .json = json,
        .without_fallback = without_fallback || v->fused & TD_CUDNN_CLIP_6,
        .without_compiled = without_fallback && v->fused & TD_CUDNN_STATISTICS,
    };
    const int status = td_cudnn_plan_init(&plan, v, &target, error);
    print_problem(v);
    if (status)
        printf(": none: %s\n", error);
    else
        printf(": engine %lld, workspace %lld%s%s%s\n", (long long)plan.engine,
               (long long)plan.workspace_bytes, plan.has_tensor_cores ? ", tensor cores" : "",
               plan.is_compiled ? ", compiled" : "", plan.is_fallback ? ", fallback" : "");
    if (is_verbose)
        print_details(&plan, !status);
    fflush(stdout);
    td_cudnn_plan_release(&plan);
    n_problems++;
    n_planned += !status;
    return !status;
}

/* the same problem of another network is not printed again */
static bool print_once(const td_cudnn_conv *v)
{
    for (int i = 0; i < n_seen; i++)
        if (memcmp(&seen[i], v, sizeof *v) == 0)
            return seen_planned[i];
    const bool is_planned = print_plan(v);
    if (n_seen < SEEN_MAX) {
        memcpy(&seen[n_seen], v, sizeof *v);
        seen_planned[n_seen++] = is_planned;
    }
    return is_planned;
}

/* --- networks --------------------------------------------------------------------------------- */

/* which operand or result of the node is x, w, y */
static bool find_roles(const td_node *n, td_cudnn_conv *v, const td_type **x, const td_type **w)
{
    const td_type *first = &n->in[0]->type, *second = n->n_in > 1 ? &n->in[1]->type : NULL;
    const td_type *result = &n->out[0]->type;
    if (n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused ||
        n->op == &td_op_conv2d_statistics) {
        v->direction = TD_CUDNN_FORWARD;
        *x = first;
        *w = second;
    } else if (n->op == &td_op_conv2d_grad_x) {
        v->direction = TD_CUDNN_DATA_GRADIENT;
        *x = result;
        *w = second;
    } else if (n->op == &td_op_conv2d_grad_w || n->op == &td_op_conv2d_scale_relu_grad_w) {
        v->direction = TD_CUDNN_FILTER_GRADIENT;
        *x = second;
        *w = result;
    } else {
        return false;
    }
    return true;
}

static void read_attributes(const td_node *n, td_cudnn_conv *v, bool may_be_wide)
{
    const td_conv_attr *a = n->attr;
    const bool is_forward = v->direction == TD_CUDNN_FORWARD;
    v->groups = a->groups;
    for (int axis = 0; axis < 2; axis++) {
        v->pad_before[axis] = a->pad;
        v->pad_after[axis] = a->pad + a->pad_extra;
        v->stride[axis] = a->stride;
        v->dilation[axis] = a->dilation;
    }
    if (is_forward && n->n_in > 2) {
        v->fused |= TD_CUDNN_BIAS;
        v->wide_vectors = may_be_wide && n->in[2]->type.dtype == TD_DT_F32;
    }
    v->fused |= is_forward && n->n_in > 3 ? TD_CUDNN_ADD : 0;
    v->fused |= is_forward && a->relu ? TD_CUDNN_RELU : 0;
    v->fused |= is_forward && a->relu && a->relu6 ? TD_CUDNN_CLIP_6 : 0;
}

static void read_norms(const td_node *n, td_cudnn_conv *v)
{
    const int scale = n->op == &td_op_conv2d_statistics ? 2 : 3;
    v->fused = n->op == &td_op_conv2d_statistics ? TD_CUDNN_STATISTICS : 0;
    if (n->n_in <= scale)
        return;
    v->fused |= TD_CUDNN_SCALE_RELU;
    v->wide_vectors = n->in[scale]->type.dtype == TD_DT_F32;
}

static bool is_of_norms(const td_node *n)
{
    return n->op == &td_op_conv2d_statistics || n->op == &td_op_conv2d_scale_relu_grad_w;
}

static bool read_node(const td_node *n, bool allow_tf32, bool is_first, td_cudnn_conv *v)
{
    const td_type *x, *w;
    memset(v, 0, sizeof *v); /* padding too: compared by memcmp */
    if (n->n_in < 2 || !find_roles(n, v, &x, &w))
        return false;
    v->dtype = x->dtype == TD_DT_F16    ? TD_CUDNN_F16
               : x->dtype == TD_DT_BF16 ? TD_CUDNN_BF16
                                        : TD_CUDNN_F32;
    v->allow_tf32 = allow_tf32 && v->dtype == TD_CUDNN_F32;
    v->is_deterministic = true;
    const bool may_be_wide = is_first && v->dtype == TD_CUDNN_F16;
    v->wide_filter = may_be_wide && w->dtype == TD_DT_F32;
    v->n = x->dim[0];
    v->c = x->dim[1];
    v->h = x->dim[2];
    v->w = x->dim[3];
    v->k = w->dim[0];
    v->r = w->dim[2];
    v->s = w->dim[3];
    if (is_of_norms(n)) {
        td_node conv = *n;
        conv.n_in = 2;
        read_attributes(&conv, v, false);
        read_norms(n, v);
    } else {
        read_attributes(n, v, may_be_wide);
    }
    return true;
}

/*
 * Otherwise no kernel is asked for: the graph depends on them for layouts and relu6 only, which the
 * device's kernels fuse except in float32 without TF32, where they do depthwise.
 */
static bool supports_relu6(void *ctx, const td_node *n)
{
    const td_conv_attr *a = n->attr;
    (void)ctx;
    if (n->op != &td_op_conv2d_fused || a->act)
        return false;
    const td_type *x = td_in_type(n, 0);
    return !(a->relu && a->relu6) || x->dtype != TD_DT_F32 || td_is_tf32(n) ||
           a->groups == x->dim[1];
}

static bool never_prefers(void *ctx, const td_node *n, td_node_layouts *out)
{
    (void)ctx;
    (void)n;
    (void)out;
    return false;
}

/* asks cuDNN about the convolutions of pass norms */
static bool supports_norms(void *ctx, const td_node *n)
{
    td_cudnn_conv v;
    (void)ctx;
    return is_of_norms(n) && read_node(n, false, false, &v) && print_once(&v);
}

static td_status make_graph(const char *arch, td_precision precision, bool is_training,
                            bool fuses_norms, td_graph **out)
{
    const td_target target = { .supports = fuses_norms ? supports_norms : supports_relu6,
                               .preferred_layout = never_prefers,
                               .fuses_norms = fuses_norms };
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_model_opts model;
    td_amp_opts amp;
    td_status st;
    td_amp_defaults(&amp);
    amp.precision = precision;
    amp.is_silent = true;
    td_model_defaults(&model);
    model.arch = arch;
    TD_OUT(td_device_open("ref", &dev));
    TD_OUT(td_amp_resolve(&amp, dev));
    TD_OUT(is_training ? td_training_graph(&model, BATCH, &(td_step_opts){ .momentum = 0.9 }, &g)
                       : td_model_graph(&model, BATCH, false, &g));
    TD_OUT(td_pass_run_all(g, &target, &(td_pass_opts){ .amp = &amp }, out));
out:
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

static bool print_network(const char *arch, int precision, bool is_training, bool is_first)
{
    td_graph *g;
    td_cudnn_conv v;
    bool is_planned = true;
    if (make_graph(arch, precisions[precision].precision, is_training, false, &g) != TD_OK) {
        fprintf(stderr, "cuda_plans: %s: %s\n", arch, td_error_message());
        return false;
    }
    printf("# %s, %s\n", arch, is_training ? "training" : "inference");
    for (int i = 0; i < g->n_nodes; i++)
        if (read_node(g->nodes[i], precisions[precision].allow_tf32, is_first, &v))
            is_planned &= print_once(&v) || v.wide_filter;
    td_graph_free(g);
    return is_planned;
}

/* the index in `precisions`, or -1 */
static int find_precision(const char *name)
{
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(precisions[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int count_ops(const td_graph *g, const td_op *op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op;
    return n;
}

/* how the training graph's norms get their statistics, and where their results are stored; in bf16
   only compiled kernels sum, which are passed over */
static bool print_norms(const char *arch, td_precision precision)
{
    static const td_op *const ops[] = {
        &td_op_batch_norm_statistics,     &td_op_batch_norm_relu_infer,   &td_op_batch_norm_infer,
        &td_op_batch_norm_add_relu_given, &td_op_batch_norm_relu,         &td_op_batch_norm,
        &td_op_batch_norm_add_relu,       &td_op_conv2d_scale_relu_grad_w
    };
    td_graph *g;
    printf("# %s, norms\n", arch);
    if (make_graph(arch, precision, true, true, &g) != TD_OK) {
        fprintf(stderr, "cuda_plans: %s: %s\n", arch, td_error_message());
        return false;
    }
    const bool is_fused = count_ops(g, ops[0]) > 0;
    printf("#");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        printf(" %s %d", ops[i]->name, count_ops(g, ops[i]));
    printf("\n");
    td_graph_free(g);
    return is_fused || precision == TD_PRECISION_BF16;
}

static bool print_all_norms(const char *name, int n_archs, char **archs)
{
    const int precision = find_precision(name);
    bool is_fused = precision >= 0;
    without_fallback = true;
    for (int i = 0; is_fused && i < n_archs; i++)
        is_fused &= print_norms(archs[i], precisions[precision].precision);
    return is_fused;
}

static bool print_networks(const char *name, int n_archs, char **archs)
{
    bool is_planned = true;
    const int precision = find_precision(name);
    if (precision < 0)
        return false;
    for (int i = 0; i < n_archs; i++) {
        is_planned &= print_network(archs[i], precision, false, i == 0);
        is_planned &= print_network(archs[i], precision, true, i == 0);
    }
    return is_planned;
}

static bool print_inference(const char *name, int n_archs, char **archs)
{
    const int precision = find_precision(name);
    bool is_planned = precision >= 0;
    for (int i = 0; is_planned && i < n_archs; i++)
        is_planned &= print_network(archs[i], precision, false, false);
    return is_planned;
}

/* --- fusions ---------------------------------------------------------------------------------- */

static td_cudnn_conv layer(int64_t c, int64_t side, int64_t k, int64_t r, int64_t stride)
{
    return (td_cudnn_conv){ .is_deterministic = true,
                            .n = BATCH,
                            .c = c,
                            .h = side,
                            .w = side,
                            .k = k,
                            .r = r,
                            .s = r,
                            .groups = 1,
                            .pad_before = { r / 2, r / 2 },
                            .pad_after = { r / 2, r / 2 },
                            .stride = { stride, stride },
                            .dilation = { 1, 1 } };
}

/* with vectors of the storage type, and of float32 */
static void print_fusions_of(td_cudnn_conv v)
{
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++) {
        v.direction = fusions[i].direction;
        v.fused = fusions[i].fused;
        v.wide_vectors = false;
        (void)print_plan(&v);
        v.wide_vectors = true;
        if (v.fused & (TD_CUDNN_SCALE_RELU | TD_CUDNN_BIAS))
            (void)print_plan(&v);
    }
}

/* a first layer, whose images may have channels of zeros: 3, 4 or 8 channels */
static void print_first_layer(td_cudnn_conv v)
{
    (void)print_plan(&v);
    v.fused = TD_CUDNN_STATISTICS;
    (void)print_plan(&v);
    v.fused = 0;
    v.direction = TD_CUDNN_FILTER_GRADIENT;
    (void)print_plan(&v);
    v.wide_filter = true;
    (void)print_plan(&v);
}

static void print_fusions(void)
{
    td_cudnn_conv grouped = layer(128, 56, 128, 3, 1), bf16 = layer(64, 56, 64, 3, 1);
    grouped.groups = 32;
    bf16.dtype = TD_CUDNN_BF16;
    print_fusions_of(layer(64, 56, 256, 1, 1));
    print_fusions_of(layer(64, 56, 64, 3, 1));
    print_fusions_of(grouped);
    print_fusions_of(bf16);
    print_first_layer(layer(3, 224, 64, 7, 2));
    print_first_layer(layer(4, 224, 64, 7, 2));
    print_first_layer(layer(8, 224, 64, 7, 2));
}

int main(int argc, char **argv)
{
    char error[TD_CUDNN_TEXT];
    int64_t version = 0;
    bool is_planned = true;
    FILE *file = argc > 2 ? fopen(argv[1], "r") : NULL;
    if (!file) {
        fputs("usage: cuda_plans DEVICE.json PRECISION|inference|fusions|norms ARCH...\n", stderr);
        return 2;
    }
    json[fread(json, 1, sizeof json - 1, file)] = '\0';
    fclose(file);
    is_verbose = getenv("CUDA_PLANS_VERBOSE");
    if (td_cudnn_open(NULL, &version, error)) {
        fprintf(stderr, "cuda_plans: %s\n", error);
        return 2;
    }
    printf("# cuDNN %lld\n", (long long)version);
    if (strcmp(argv[2], "fusions") == 0) {
        print_fusions();
    } else if (strcmp(argv[2], "norms") == 0 && argc > 3) {
        is_planned = print_all_norms(argv[3], argc - 4, argv + 4);
    } else if (strcmp(argv[2], "inference") == 0 && argc > 3) {
        is_planned = print_inference(argv[3], argc - 4, argv + 4);
    } else {
        is_planned = print_networks(argv[2], argc - 3, argv + 3);
    }
    fprintf(stderr, "%d problems, %d planned\n", n_problems, n_planned);
    return !is_planned || n_problems == 0;
}
