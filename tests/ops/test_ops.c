/*
 * test_ops.c -- the driver of problem lines: every kernel of every backend against the reference
 *
 *     test_ops FILE.lines ...      README.md beside this file describes the lines
 *     test_ops --device cuda ...   the kernels of that device
 *
 * For each line and each node of its graph (the op and its gradients), each kernel that accepts the
 * node, in plain order and in the blocked layouts it accepts, must
 *
 *     agree with the reference kernel       tolerance.h
 *     leave a layout's padding zero
 *     give the same bits again, and, where the kernel is ours and the processor's, with another
 *     number of threads
 *     give the same bits when the first and the last result take over operands, as may_overwrite
 *     and may_overwrite_last permit
 *     give the same bits when several nodes run as one call, if it has td_multi
 *
 * and the gradients must agree with central finite differences of the reference kernel in float64.
 */
/* ctest: timeout 600 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "backend/ref/ref.h"
#include "base/rng.h"
#include "problem.h"
#include "runtime/device.h"
#include "runtime/emulate_half.h"
#include "tandem/program.h"
#include "tolerance.h"

#define MAX_TENSORS    (TD_IN_MAX + TD_OUT_MAX)
#define SMALL_MACS     20000000 /* above, the reference kernel is not run again and again */
#define SMALL_ELEMENTS 20000    /* above, no finite differences */
#define TINY_ELEMENTS  48       /* up to here, every element of a gradient is checked */

#define MAX_KERNELS 256 /* of a device */

static td_device *device;           /* NULL: all kernels of the processor */
static int n_compared[MAX_KERNELS]; /* comparisons of each kernel of the device */
static int n_multi;                 /* calls of several nodes */

typedef struct {
    const char *file;
    int line, n_failed;
    int n_compared, n_gradients; /* comparisons made, for the report */
    int n_absent;                /* kernels for a library's choice that it has not */
    char text[1024];
} run;

static void fail(run *r, const char *fmt, ...) TD_PRINTF(2, 3);

static void fail(run *r, const char *fmt, ...)
{
    va_list args;
    printf("%s:%d: %s: ", r->file, r->line, r->text);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    r->n_failed++;
}

static void set_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

/* --- tensors in other layouts ----------------------------------------------------------------- */

/* the index of element `i` of plain order */
static void index_of(const td_type *t, int64_t i, int64_t *at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
}

/* where element `i` of plain order lies in t's memory */
static int64_t place_of(const td_type *t, const td_blocking *bl, int64_t i)
{
    int64_t at[TD_RANK_MAX];
    index_of(t, i, at);
    return td_blocking_offset(bl, t, at);
}

static bool is_blocked(const td_blocking *bl, int d)
{
    bool is = false;
    for (int i = 0; i < bl->n_blocks; i++)
        is = is || bl->block_dim[i] == d;
    return is;
}

#define COPY(type, n, to, to_step, from, from_step)                                                \
    for (int64_t i_ = 0; i_ < (n); i_++)                                                           \
    ((type *)(to))[i_ * (to_step)] = ((const type *)(from))[i_ * (from_step)]

/* n elements of `each` bytes; steps in elements */
static void copy_elements(size_t each, int64_t n, void *to, int64_t to_step, const void *from,
                          int64_t from_step)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)n * each);
    else if (each == 1)
        COPY(uint8_t, n, to, to_step, from, from_step);
    else if (each == 2)
        COPY(uint16_t, n, to, to_step, from, from_step);
    else if (each == 4)
        COPY(uint32_t, n, to, to_step, from, from_step);
    else
        COPY(uint64_t, n, to, to_step, from, from_step);
}

/* n: from each multiple of n on, n elements of plain order have places a constant step apart */
static int64_t run_length(const td_type *t, const td_blocking *bl, int64_t *step)
{
    int64_t n = 1;
    *step = 1;
    for (int d = t->rank - 1; d > 0 && !is_blocked(bl, d + bl->rank - t->rank); d--) {
        if (t->dim[d] == 1)
            continue;
        const int64_t stride = place_of(t, bl, n) - place_of(t, bl, 0);
        if (n > 1 && stride != n * *step)
            break;
        *step = n > 1 ? *step : stride;
        n *= t->dim[d];
    }
    return n;
}

/* copy between plain order and t's layout; the padding of t is zeroed */
static void convert(const td_type *t, size_t each, void *blocked, void *plain, bool to_blocked)
{
    td_blocking bl;
    int64_t step;
    const int64_t count = td_type_count(t);
    if (td_type_is_plain(t)) {
        memcpy(to_blocked ? blocked : plain, to_blocked ? plain : blocked, (size_t)count * each);
        return;
    }
    TD_CHECK(td_type_blocking(t, &bl));
    const int64_t n = run_length(t, &bl, &step);
    if (to_blocked)
        memset(blocked, 0, (size_t)td_type_bytes(t) / td_dtype_bytes(t->dtype) * each);
    for (int64_t i = 0; i < count; i += n) {
        char *b = (char *)blocked + (size_t)place_of(t, &bl, i) * each;
        char *q = (char *)plain + (size_t)i * each;
        if (to_blocked)
            copy_elements(each, n, b, step, q, 1);
        else
            copy_elements(each, n, q, 1, b, step);
    }
}

static int64_t mask_bit(const uint8_t *mask, int64_t i)
{
    return mask[i / 8] >> (i % 8) & 1;
}

/* a mask in the memory order of `x` from one in plain order, or back */
static void convert_mask(const td_type *x, uint8_t *blocked, uint8_t *plain, bool to_blocked)
{
    const int64_t count = td_type_count(x);
    uint8_t *from = to_blocked ? plain : blocked, *to = to_blocked ? blocked : plain;
    td_blocking bl;
    int64_t step;
    TD_CHECK(td_type_blocking(x, &bl));
    const int64_t n = run_length(x, &bl, &step);
    memset(to, 0, (size_t)(to_blocked ? td_type_padded_count(x) : count) / 8);
    for (int64_t i = 0, j = 0; i < count; i++, j += step) {
        if (i % n == 0)
            j = place_of(x, &bl, i);
        const int64_t bit = mask_bit(from, to_blocked ? i : j), k = to_blocked ? j : i;
        to[k / 8] = (uint8_t)(to[k / 8] | bit << (k % 8));
    }
}

/* --- a node with other layouts ---------------------------------------------------------------- */

typedef struct {
    td_node node;
    int n_tensors;
    td_value value[MAX_TENSORS];
    td_value *pointer[MAX_TENSORS];
    td_reorder_attr reorder;
    char name[80]; /* "aBcd16b", for messages */
} variant;

static const td_type *tensor_type(const td_node *n, int i)
{
    return i < n->n_in ? &n->in[i]->type : &n->out[i - n->n_in]->type;
}

static bool has_rank_4(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (tensor_type(n, i)->rank == 4)
            return true;
    return false;
}

static void variant_start(const td_node *n, variant *v)
{
    *v = (variant){ .node = *n, .n_tensors = n->n_in + n->n_out };
    for (int i = 0; i < v->n_tensors; i++) {
        v->value[i] = i < n->n_in ? *n->in[i] : *n->out[i - n->n_in];
        v->pointer[i] = &v->value[i];
    }
    v->node.in = v->pointer;
    v->node.out = v->pointer + n->n_in;
}

static void set_layout(td_value *v, const char *layout)
{
    memset(v->type.layout, 0, sizeof v->type.layout);
    memcpy(v->type.layout, layout, strlen(layout));
}

static bool is_mask(const td_node *n, int i)
{
    return strncmp(n->op->name, "batch_norm", 10) == 0 && tensor_type(n, i)->dtype == TD_DT_U8;
}

/* the rank-4 tensor whose memory order a mask follows */
static const td_type *masked_type(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (td_in_type(n, i)->rank == 4)
            return td_in_type(n, i);
    return NULL;
}

/* every tensor of rank 4 in one layout; false when that makes no sense */
static bool variant_follow(const td_node *n, const char *layout, variant *v)
{
    variant_start(n, v);
    (void)snprintf(v->name, sizeof v->name, "%s", *layout ? layout : "plain");
    if (*layout && (!has_rank_4(n) || strncmp(n->op->name, "conv2d", 6) == 0))
        return false;
    for (int i = 0; i < v->n_tensors; i++)
        if (v->value[i].type.rank == 4)
            set_layout(&v->value[i], layout);
    for (int i = 0; i < v->n_tensors; i++)
        if (is_mask(n, i))
            v->value[i].type.dim[0] = td_type_padded_count(masked_type(&v->node)) / 8;
    return true;
}

/* the first operand that may have another layout than operand 0, or than plain order, in acdb */
static bool variant_copies(const td_node *n, variant *v)
{
    variant_start(n, v);
    (void)snprintf(v->name, sizeof v->name, "plain, one in acdb");
    for (int i = 0; i < n->n_in; i++)
        if ((n->op->own_layout >> i & 1) && tensor_type(n, i)->rank == 4) {
            set_layout(&v->value[i], "acdb");
            return true;
        }
    return false;
}

typedef bool (*layout_query)(const td_node *n, td_node_layouts *out);

/* what a backend wants where operand 0 lies in `first` */
static bool variant_preferred(const td_node *n, layout_query asked, const char *first, variant *v)
{
    td_node_layouts preferred_layout = { 0 };
    variant_start(n, v);
    if (n->op->layout != TD_LAYOUT_CHOOSES || !asked || n->n_in > TD_NODE_LAYOUTS)
        return false;
    set_layout(&v->value[0], first);
    if (!asked(&v->node, &preferred_layout))
        return false;
    for (int i = 0; i < n->n_in; i++)
        set_layout(&v->value[i], preferred_layout.in[i]);
    set_layout(&v->value[n->n_in], preferred_layout.out);
    (void)snprintf(v->name, sizeof v->name, "its wish %s -> %s", preferred_layout.in[0],
                   preferred_layout.out);
    return true;
}

static bool is_result(const td_node *n, int i)
{
    return i >= n->n_in || (n->op->writes >> i & 1);
}

/* --- buffers of one call ---------------------------------------------------------------------- */

typedef struct {
    void *at[MAX_TENSORS];
} buffers;

static void buffers_release(buffers *b)
{
    for (int i = 0; i < MAX_TENSORS; i++)
        td_free(b->at[i]);
    *b = (buffers){ { NULL } };
}

static void convert_tensor(const variant *v, int i, void *blocked, void *plain, bool to_blocked)
{
    const td_type *t = &v->value[i].type;
    if (is_mask(&v->node, i))
        convert_mask(masked_type(&v->node), blocked, plain, to_blocked);
    else
        convert(t, td_dtype_bytes(t->dtype), blocked, plain, to_blocked);
}

/* operands in v's layouts from `plain`; results full of 0xff, which is NaN */
static td_status buffers_make(const variant *v, void *const *plain, buffers *b)
{
    *b = (buffers){ { NULL } };
    for (int i = 0; i < v->n_tensors; i++) {
        const size_t n_bytes = (size_t)td_type_bytes(&v->value[i].type);
        b->at[i] = td_alloc(n_bytes + TD_PROBLEM_FENCE, 1);
        if (!b->at[i]) {
            buffers_release(b);
            return TD_ENOMEM;
        }
        memset((char *)b->at[i] + n_bytes, 0x5a, TD_PROBLEM_FENCE); /* a fence */
        if (i < v->node.n_in)
            convert_tensor(v, i, b->at[i], plain[i], true);
        else
            memset(b->at[i], 0xff, n_bytes);
    }
    return TD_OK;
}

static bool fence_is_whole(const variant *v, const buffers *b, int i)
{
    const uint8_t *end = (uint8_t *)b->at[i] + td_type_bytes(&v->value[i].type);
    for (int j = 0; j < TD_PROBLEM_FENCE; j++)
        if (end[j] != 0x5a)
            return false;
    return true;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* largest difference over the largest entry; infinite when a number is missing */
static double difference(td_dtype d, const void *wanted, const void *found, int64_t count)
{
    double most = 0, worst = 0;
    for (int64_t from = 0; from < count; from += 512) {
        double w[512], f[512];
        const int64_t n = count - from < 512 ? count - from : 512;
        const size_t at = (size_t)from * td_dtype_bytes(d);
        td_ref_load(d, (const char *)wanted + at, n, w);
        td_ref_load(d, (const char *)found + at, n, f);
        for (int64_t i = 0; i < n; i++) {
            const double gap = w[i] == f[i] ? 0 : fabs(w[i] - f[i]);
            worst = isnan(gap) ? INFINITY : fmax(worst, gap);
            most = isinf(w[i]) ? most : fmax(most, fabs(w[i]));
        }
    }
    return worst == 0 ? 0 : worst / (most > 0 ? most : 1);
}

/* does mask `i` differ where result 0 is not as near zero as rounding? */
static bool mask_differs(const td_node *n, void *const *wanted, int i, const uint8_t *found)
{
    const td_dtype d = tensor_type(n, n->n_in)->dtype;
    const char *y = wanted[n->n_in];
    const int64_t count = td_type_count(masked_type(n));
    double most = 0, value;
    for (int64_t k = 0; k < count; k++) {
        td_ref_load(d, y + (size_t)k * td_dtype_bytes(d), 1, &value);
        most = fmax(most, fabs(value));
    }
    for (int64_t k = 0; k < count; k++) {
        td_ref_load(d, y + (size_t)k * td_dtype_bytes(d), 1, &value);
        if (mask_bit(wanted[i], k) != mask_bit(found, k) &&
            fabs(value) > td_tolerance(n->op->name, d) * most)
            return true;
    }
    return false;
}

/* what the kernel's arithmetic may cost; two gradients in a half type are added, and rounded,
   before they are summed up */
static double limit_of(const td_node *n, td_dtype d)
{
    const td_dtype x = tensor_type(n, 0)->dtype;
    const bool is_sum = n->op == &td_op_batch_norm_add_relu_grad && n->n_in > 6;
    if (device && td_is_tf32(n))
        return TD_TF32_TOLERANCE;
    return td_tolerance(n->op->name, is_sum && td_dtype_is_half(x) ? x : d);
}

/* one result, back in plain order, against the expected one */
static void compare_result(run *r, const variant *v, const td_kernel *k, int i, void *const *wanted,
                           const buffers *got)
{
    const td_node *n = &v->node;
    const td_type *t = tensor_type(n, i);
    const double limit = limit_of(n, t->dtype);
    const size_t n_bytes = (size_t)td_type_bytes(t);
    const int64_t count = td_type_count(t);
    void *plain = td_alloc(n_bytes, 1), *again = td_alloc(n_bytes, 1);
    if (!plain || !again) {
        fail(r, "out of memory");
    } else {
        convert_tensor(v, i, got->at[i], plain, false);
        convert_tensor(v, i, again, plain, true);
        const double gap = is_mask(n, i) ? 0 : difference(t->dtype, wanted[i], plain, count);
        if (gap > limit)
            fail(r, "%s (%s): tensor %d differs by %.3g of its largest entry, %.3g is allowed",
                 k->name, v->name, i, gap, limit);
        if (is_mask(n, i) && mask_differs(n, wanted, i, plain))
            fail(r, "%s (%s): the mask differs", k->name, v->name);
        if (memcmp(again, got->at[i], n_bytes) != 0)
            fail(r, "%s (%s): tensor %d has numbers in its padding", k->name, v->name, i);
        if (!fence_is_whole(v, got, i))
            fail(r, "%s (%s): tensor %d was written past its end", k->name, v->name, i);
    }
    td_free(plain);
    td_free(again);
}

/* --- one kernel on one variant ---------------------------------------------------------------- */

/* the operands that the first and the last result take over; -1: none */
typedef struct {
    int first, last;
} takeover;

static const takeover nothing = { -1, -1 };

/* result i takes over operand `over` unless that is negative */
static void take_over(void **args, int i, int over)
{
    if (over >= 0)
        args[i] = args[over];
}

static void copy_taken(const variant *v, const buffers *b, int i, int over)
{
    if (over >= 0)
        memcpy(b->at[i], b->at[over], (size_t)td_type_bytes(tensor_type(&v->node, over)));
}

static bool is_on_device(const td_kernel *k)
{
    return device && strncmp(k->name, "ref_", 4) != 0;
}

/* run on fresh buffers */
static td_status run_fresh(const variant *v, const td_kernel *k, void *const *plain, takeover over,
                           buffers *b)
{
    void *args[MAX_TENSORS];
    TD_TRY(buffers_make(v, plain, b));
    memcpy(args, b->at, sizeof args);
    take_over(args, v->node.n_in, over.first);
    take_over(args, v->n_tensors - 1, over.last);
    td_status st =
        td_kernel_run_once(k, &v->node, is_on_device(k) ? device->memory : &td_host_memory, args);
    if (st == TD_OK) {
        copy_taken(v, b, v->node.n_in, over.first);
        copy_taken(v, b, v->n_tensors - 1, over.last);
    }
    return st;
}

static bool same_bits(const variant *v, const buffers *a, const buffers *b)
{
    for (int i = 0; i < v->n_tensors; i++)
        if (is_result(&v->node, i) &&
            memcmp(a->at[i], b->at[i], (size_t)td_type_bytes(&v->value[i].type)) != 0)
            return false;
    return true;
}

/* cuDNN's sums of a convolution's result differ from run to run on a GPU */
static bool is_reproducible(const td_kernel *k)
{
    return k->op != &td_op_conv2d_statistics || strncmp(k->name, "cudnn_", 6) != 0;
}

static void repeat(run *r, const variant *v, const td_kernel *k, void *const *plain,
                   const buffers *first, takeover over, const char *how)
{
    buffers b = { { NULL } };
    if (run_fresh(v, k, plain, over, &b) != TD_OK)
        fail(r, "%s (%s), %s: %s", k->name, v->name, how, td_error_message());
    else if (is_reproducible(k) && !same_bits(v, first, &b))
        fail(r, "%s (%s): other bits %s", k->name, v->name, how);
    buffers_release(&b);
}

/* may result r, the first or the last, take over operand i?  -1: none */
static bool may_take_over(const td_node *n, int r, int i)
{
    if (i < 0)
        return true;
    const uint32_t may = r == 0 ? n->op->may_overwrite : n->op->may_overwrite_last;
    return (may >> i & 1) && td_type_equal(tensor_type(n, i), tensor_type(n, n->n_in + r));
}

static void repeat_in_place(run *r, const variant *v, const td_kernel *k, void *const *plain,
                            const buffers *first)
{
    const td_node *n = &v->node;
    for (int i = -1; i < n->n_in; i++)
        for (int j = -1; j < (n->n_out > 1 ? n->n_in : 0); j++)
            if (i != j && may_take_over(n, 0, i) && may_take_over(n, n->n_out - 1, j))
                repeat(r, v, k, plain, first, (takeover){ i, j },
                       "when results take over operands");
}

static void repeat_all(run *r, const variant *v, const td_backend *b, const td_kernel *k,
                       void *const *plain, const buffers *first)
{
    repeat(r, v, k, plain, first, nothing, "in a second run");
    /* oneDNN promises nothing about that; kernels of a device have no threads of the processor */
    if (strcmp(b->name, "dnnl") != 0 && !is_on_device(k)) {
        set_threads(2);
        repeat(r, v, k, plain, first, nothing, "on two threads");
        set_threads(5); /* more than most blocks: divides them differently */
        repeat(r, v, k, plain, first, nothing, "on five threads");
        set_threads(1);
    }
    repeat_in_place(r, v, k, plain, first);
}

/* several nodes like v as one call; of chained ones only the last has a result */
static void repeat_multi(run *r, const variant *v, const td_kernel *k, void *const *plain,
                         const buffers *first)
{
    buffers b[TD_PROBLEM_NODES] = { { { NULL } } };
    void *const *args[TD_PROBLEM_NODES];
    td_status st = TD_OK;
    for (int i = 0; i < TD_PROBLEM_NODES && st == TD_OK; i++) {
        st = buffers_make(v, plain, &b[i]);
        args[i] = b[i].at;
    }
    if (st == TD_OK)
        st = td_kernel_run_multi(k, &v->node, device->memory, args, TD_PROBLEM_NODES);
    if (st != TD_OK)
        fail(r, "%s (%s), as one call: %s", k->name, v->name, td_error_message());
    for (int i = 0; i < TD_PROBLEM_NODES && st == TD_OK; i++) {
        const bool has_result = k->multi->chained < 0 || i == TD_PROBLEM_NODES - 1;
        for (int t = 0; t < v->n_tensors; t++)
            if (!fence_is_whole(v, &b[i], t))
                fail(r, "%s (%s), as one call: tensor %d was written past its end", k->name,
                     v->name, t);
        if (has_result && !same_bits(v, first, &b[i]))
            fail(r, "%s (%s): other bits when several nodes run as one call", k->name, v->name);
    }
    for (int i = 0; i < TD_PROBLEM_NODES; i++)
        buffers_release(&b[i]);
    n_multi++;
}

static bool is_big(const td_node *n)
{
    return n->op->macs && n->op->macs(n) > SMALL_MACS;
}

/* `plain`: what goes in, `wanted`: what shall come out, both by tensor */
static void check_kernel(run *r, const variant *v, const td_backend *b, const td_kernel *k,
                         void *const *plain, void *const *wanted)
{
    const td_node *n = &v->node;
    buffers got = { { NULL } };
    if (strcmp(b->name, "ref") == 0 && is_big(n))
        return; /* what the others are measured with */
    const td_status st = run_fresh(v, k, plain, nothing, &got);
    if (st == TD_ENOKERNEL && k->variant > 0) {
        r->n_absent++;
    } else if (st != TD_OK) {
        fail(r, "%s (%s): %s", k->name, v->name, td_error_message());
    } else {
        for (int i = 0; i < v->n_tensors; i++)
            if (is_result(n, i))
                compare_result(r, v, k, i, wanted, &got);
        repeat_all(r, v, b, k, plain, &got);
        if (k->multi && n->op != &td_op_grad_norm) /* that of several is another: cuda.multi */
            repeat_multi(r, v, k, plain, &got);
        r->n_compared++;
    }
    buffers_release(&got);
}

static void check_backend(run *r, const variant *v, const td_backend *b, void *const *plain,
                          void *const *wanted)
{
    for (int i = 0; i < b->n_kernels; i++)
        if (b->kernels[i]->op == v->node.op && b->kernels[i]->accepts(&v->node) == TD_OK) {
            check_kernel(r, v, b, b->kernels[i], plain, wanted);
            if (device && i < MAX_KERNELS)
                n_compared[i]++;
        }
}

/* emulation in float32 is no backend's; its inner kernel may be oneDNN's */
static void check_emulation(run *r, const variant *v, void *const *plain, void *const *wanted)
{
    static const td_backend stand_in = { .name = "dnnl" };
    if (td_emulate_half.accepts(&v->node) == TD_OK)
        check_kernel(r, v, &stand_in, &td_emulate_half, plain, wanted);
}

/* oneDNN shares work out differently among two threads, and there are kernels for that alone: with
   more threads than images they also divide channels */
static void check_threads(run *r, const variant *v, const td_backend *b, void *const *plain,
                          void *const *wanted)
{
    if (strcmp(b->name, "dnnl") != 0 || is_big(&v->node))
        return;
    set_threads(2);
    check_backend(r, v, b, plain, wanted);
    if (v->node.op == &td_op_conv2d_grad_w && td_dtype_is_half(v->value[0].type.dtype)) {
        set_threads(5);
        check_backend(r, v, b, plain, wanted);
    }
    set_threads(1);
}

static void check_variant(run *r, const variant *v, void *const *plain, void *const *wanted)
{
    const td_backend *b;
    if (device) {
        check_backend(r, v, device->backends[0], plain, wanted);
        return;
    }
    for (int j = 0; (b = td_backend_at(j)); j++) {
        check_backend(r, v, b, plain, wanted);
        check_threads(r, v, b, plain, wanted);
    }
    check_emulation(r, v, plain, wanted);
}

/* --- one node --------------------------------------------------------------------------------- */

static const char *const layouts[] = { "", "acdb", "aBcd8b", "aBcd16b" };
#define N_LAYOUTS 4

static const td_dtype moved_dtypes[] = { TD_DT_F32, TD_DT_BF16, TD_DT_F16 };

/* reorder and assign in all pairs of layouts, float32 also in all pairs of dtypes */
static void check_move(run *r, const td_node *n, const td_dtype dtypes[2], const char *const to[2],
                       const double *x)
{
    const int from_i = n->op == &td_op_assign ? 1 : 0, to_i = 1 - from_i;
    const int64_t count = td_type_count(tensor_type(n, 0));
    void *plain[MAX_TENSORS] = { NULL }, *wanted[MAX_TENSORS] = { NULL };
    variant v;
    variant_start(n, &v);
    v.value[from_i].type.dtype = dtypes[0];
    v.value[to_i].type.dtype = dtypes[1];
    set_layout(&v.value[from_i], to[0]);
    set_layout(&v.value[to_i], to[1]);
    v.reorder = td_reorder_attr_of(to[1], dtypes[1]);
    if (n->op == &td_op_reorder)
        v.node.attr = &v.reorder;
    (void)snprintf(v.name, sizeof v.name, "%s '%s' -> %s '%s'", td_dtype_name(dtypes[0]), to[0],
                   td_dtype_name(dtypes[1]), to[1]);
    for (int i = 0; i < 2; i++)
        plain[i] = td_alloc((size_t)count, sizeof(double));
    wanted[to_i] = td_alloc((size_t)count, sizeof(double));
    double *rounded = td_alloc((size_t)count, sizeof *rounded);
    if (plain[0] && plain[1] && wanted[to_i] && rounded) {
        td_ref_store(dtypes[0], x, count, plain[from_i]);
        td_ref_load(dtypes[0], plain[from_i], count, rounded);
        td_ref_store(dtypes[1], rounded, count, wanted[to_i]);
        wanted[from_i] = plain[from_i];
        check_variant(r, &v, plain, wanted);
    } else {
        fail(r, "out of memory");
    }
    td_free(plain[0]);
    td_free(plain[1]);
    td_free(wanted[to_i]);
    td_free(rounded);
}

static const char *const filter_layouts[] = {
    "",        "ABcd16b16a",   "ABcd8b8a",    "ABcd8b16a2b", "BAcd8a16b2a",
    "Acdb16a", "AcdB16b32a2b", "BcdA16a32b2a"
};
#define N_FILTER_LAYOUTS (int)(sizeof filter_layouts / sizeof filter_layouts[0])

/* images and filters have their own layouts; an operand is a filter when it is called w */
static void check_moves(run *r, const td_node *n, void *const *plain)
{
    const bool is_filter = strcmp(n->in[0]->name, "w") == 0;
    const char *const *all = is_filter ? filter_layouts : layouts;
    const int n_layouts = !has_rank_4(n) ? 1 : is_filter ? N_FILTER_LAYOUTS : N_LAYOUTS;
    const int from_i = n->op == &td_op_assign ? 1 : 0;
    const td_dtype dtype = tensor_type(n, 0)->dtype;
    const int64_t count = td_type_count(tensor_type(n, 0));
    double *x = td_alloc((size_t)count, sizeof *x);
    if (!x) {
        fail(r, "out of memory");
        return;
    }
    td_ref_load(dtype, plain[from_i], count, x);
    const bool is_all = dtype == TD_DT_F32;
    for (int i = 0; i < n_layouts * n_layouts; i++)
        for (int d = 0; d < (is_all ? 9 : 1); d++) {
            const td_dtype dtypes[2] = { is_all ? moved_dtypes[d / 3] : dtype,
                                         is_all ? moved_dtypes[d % 3] : dtype };
            const char *const to[2] = { all[i / n_layouts], all[i % n_layouts] };
            check_move(r, n, dtypes, to, x);
        }
    td_free(x);
}

/* an op that changes its operands: what they are afterwards */
static td_status work_out_changes(const td_node *n, void *const *plain, buffers *out)
{
    variant v;
    const td_backend *ref = td_backend_named("ref");
    (void)variant_follow(n, "", &v);
    for (int i = 0; ref && i < ref->n_kernels; i++)
        if (ref->kernels[i]->op == n->op && ref->kernels[i]->accepts(n) == TD_OK)
            return run_fresh(&v, ref->kernels[i], plain, nothing, out);
    return td_error(TD_ENOKERNEL, "%s: no reference kernel", n->op->name);
}

static const td_backend *device_backend(int i)
{
    return i == 0 ? device->backends[0] : NULL;
}

static bool is_tiled(const td_node *n)
{
    return n->op == &td_op_conv2d_winograd || n->op == &td_op_conv2d_winograd_scaled ||
           n->op == &td_op_conv2d_winograd_grad_x || n->op == &td_op_conv2d_winograd_grad_w ||
           n->op == &td_op_winograd_filter;
}

/* layout i of operand 0: tiled convolutions prefer layouts that depend on it */
static const char *first_layout(const td_node *n, int i)
{
    static const char *const filters[N_LAYOUTS] = { "", "ABcd16b16a", "ABcd8b8a", "" };
    return n->op == &td_op_winograd_filter ? filters[i] : layouts[i];
}

static void check_node(run *r, const td_problem *p, const td_node *n)
{
    const td_backend *b;
    void *plain[MAX_TENSORS], *wanted[MAX_TENSORS];
    buffers changed = { { NULL } };
    variant v;
    td_problem_args(p, n, plain);
    td_problem_args(p, n, wanted);
    if (n->op == &td_op_reorder || n->op == &td_op_assign) {
        check_moves(r, n, plain);
        return;
    }
    if (n->op->writes) {
        if (work_out_changes(n, plain, &changed) != TD_OK)
            fail(r, "%s", td_error_message());
        else
            memcpy(wanted, changed.at, sizeof wanted);
    }
    for (int i = 0; i < N_LAYOUTS; i++)
        if (variant_follow(n, layouts[i], &v))
            check_variant(r, &v, plain, wanted);
    if (variant_copies(n, &v))
        check_variant(r, &v, plain, wanted);
    for (int j = 0; (b = device ? device_backend(j) : td_backend_at(j)); j++)
        for (int i = 0; i < (is_tiled(n) ? N_LAYOUTS : 1); i++)
            if (variant_preferred(n, b->preferred_layout, first_layout(n, i), &v))
                check_variant(r, &v, plain, wanted);
    if (variant_preferred(n, td_emulate_half_preferred_layout, "", &v))
        check_variant(r, &v, plain, wanted);
    buffers_release(&changed);
}

/* --- gradients against finite differences ----------------------------------------------------- */

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* <result 0, dy> after operand `i` has moved by step * direction */
static double loss_after(run *r, const td_problem *p, int i, const double *direction, double step)
{
    const td_node *n = p->forward;
    double *x = p->data[n->in[i]->id];
    const int64_t count = td_type_count(td_in_type(n, i));
    double *kept = td_alloc((size_t)count, sizeof *kept);
    if (!kept)
        return NAN;
    memcpy(kept, x, (size_t)count * sizeof *x);
    for (int64_t j = 0; j < count; j++)
        x[j] += step * direction[j];
    if (td_problem_run(p, n) != TD_OK)
        fail(r, "%s", td_error_message());
    memcpy(x, kept, (size_t)count * sizeof *x);
    td_free(kept);
    return dot(p->data[n->out[0]->id], p->data[p->dy->id], td_type_count(&n->out[0]->type));
}

static void check_direction(run *r, const td_problem *p, int i, const double *direction,
                            const double *dx, double size)
{
    const double h = 1e-5;
    const int64_t count = td_type_count(td_in_type(p->forward, i));
    const double ahead = loss_after(r, p, i, direction, h);
    const double behind = loss_after(r, p, i, direction, -h);
    const double found = dot(dx, direction, count), wanted = (ahead - behind) / (2 * h);
    r->n_gradients++;
    if (!(fabs(found - wanted) <= TD_GRADIENT_TOLERANCE * size))
        fail(r, "gradient of operand %d: %.12g, finite differences give %.12g", i, found, wanted);
}

static void check_gradient(run *r, const td_problem *p, int i)
{
    const int64_t count = td_type_count(td_in_type(p->forward, i));
    const double *dx = p->data[p->dx[i]->id];
    double *direction = td_alloc((size_t)count, sizeof *direction);
    if (!direction) {
        fail(r, "out of memory");
        return;
    }
    const double size = sqrt(dot(dx, dx, count)) + 1e-3;
    td_rng rng = td_rng_make(2, TD_RNG_TEST, (uint64_t)i, (uint64_t)count);
    for (int k = 0; k < 3; k++) {
        for (int64_t j = 0; j < count; j++)
            direction[j] = td_rng_normal(&rng);
        check_direction(r, p, i, direction, dx, size);
    }
    for (int64_t k = 0; count <= TINY_ELEMENTS && k < count; k++) {
        memset(direction, 0, (size_t)count * sizeof *direction);
        direction[k] = 1;
        check_direction(r, p, i, direction, dx, size);
    }
    td_free(direction);
}

static bool is_small(const td_problem *p)
{
    int64_t elements = 0;
    for (int i = 0; i < p->forward->n_in; i++)
        elements += td_type_count(td_in_type(p->forward, i));
    return elements <= SMALL_ELEMENTS;
}

static void check_gradients(run *r)
{
    td_problem p;
    if (td_problem_make(r->text, TD_DT_F64, &p) != TD_OK) {
        fail(r, "in f64: %s", td_error_message());
        return;
    }
    const bool is_smooth = p.forward->out[0]->type.dtype == TD_DT_F64 && /* a cast may round */
                           !td_is_tf32(p.forward);
    for (int i = 0; is_smooth && is_small(&p) && i < p.forward->n_in; i++)
        if (p.dx[i])
            check_gradient(r, &p, i);
    td_problem_release(&p);
}

/* --- lines ------------------------------------------------------------------------------------ */

static void check_line(run *r)
{
    td_problem p;
    if (td_problem_make(r->text, TD_DT_NONE, &p) != TD_OK) {
        fail(r, "%s", td_error_message());
        return;
    }
    for (int i = 0; i < p.graph->n_nodes; i++)
        if (!p.graph->nodes[i]->op->is_leaf)
            check_node(r, &p, p.graph->nodes[i]);
    const bool has_gradient = p.dy != NULL;
    td_problem_release(&p);
    if (has_gradient && !device) /* the reference's */
        check_gradients(r);
}

static bool is_problem(char *text)
{
    text[strcspn(text, "#\n")] = '\0';
    return text[strspn(text, " ")] != '\0';
}

static int run_file(const char *path)
{
    run r = { .file = path };
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("cannot open '%s'\n", path);
        return 1;
    }
    int n_lines = 0;
    while (fgets(r.text, sizeof r.text, f)) {
        r.line++;
        if (!is_problem(r.text))
            continue;
        n_lines++;
        check_line(&r);
    }
    (void)fclose(f);
    printf("%s: %d problems, %d kernel runs compared, %d gradients checked, %d failures\n", path,
           n_lines, r.n_compared, r.n_gradients, r.n_failed);
    if (r.n_absent > 0)
        printf("%d runs of kernels for a library's second or later choice, which it has not\n",
               r.n_absent);
    return r.n_failed > 0 || r.n_compared == 0;
}

/* how often each kernel of the device was compared, so that none is left out unseen */
static void print_kernels(const td_backend *b)
{
    printf("%s: %d calls of several nodes;", b->name, n_multi);
    for (int i = 0; i < b->n_kernels && i < MAX_KERNELS; i++)
        printf(" %s %d%s", b->kernels[i]->op->name, n_compared[i], i + 1 < b->n_kernels ? "," : "");
    printf("\n");
}

int main(int argc, char **argv)
{
    td_process_setup(argv);
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--device") == 0) {
        first = 3;
        if (td_device_open(argv[2], &device) != TD_OK) {
            printf("%s\n", td_error_message());
            return 1;
        }
    }
    int n_bad = argc <= first;
    set_threads(1); /* threads that wait for work that is too small cost more than they bring */
    for (int i = first; i < argc; i++)
        n_bad += run_file(argv[i]);
    if (device)
        print_kernels(device->backends[0]);
    td_device_close(device);
    return n_bad > 0;
}
