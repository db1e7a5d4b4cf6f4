/*
 * inspect_memory.c -- shows the offset and lifetime of every buffer of a plan
 *
 *     MB ^   _________ planned _______________________________________________
 *        |       .-- alive --.        [gradient]  [gr.]
 *        |   [activation     |                 ]
 *        |   [    ] [activation      ]  [scratch]
 *        |   [ weights, momentum buffers, statistics                               ]
 *        +---------------------------------------------------------------> kernel
 *             conv1  layer1  layer2 ...   layer2  layer1  conv1
 *
 * The kind of a buffer depends on the executed graph and the buffer's first value: a value on which
 * the outputs depend is an activation; a result of an op "..._grad...", or one that depends on such
 * a result, is a gradient.
 */
#include "inspect/inspect_memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "profiler/profile.h"
#include "profiler/svg.h"
#include "runtime/program_view.h"

enum {
    WIDTH = 1200,
    LEFT = 80,
    RIGHT = 1180,
    TOP = 128,
    PLOT = 620,   /* height */
    BOTTOM = 62,  /* height below the plot: two rows of labels */
    LEGEND = 270, /* width of an entry of the legend */
    COLUMNS = 4,  /* columns of the legend */
    MOST = 3500,  /* rectangles; about 900 kB with their labels */
    OUTLINED = 3, /* pixels: larger rectangles have an outline */
    LABEL = 46    /* pixels: least width for a layer's name */
};

typedef enum {
    WEIGHT,
    COPY,
    MOMENTUM,
    STAT,
    PREPARED,
    ACTIVATION,
    RECOMPUTED,
    GRADIENT,
    WEIGHT_GRADIENT,
    SCRATCH,
    OTHER,
    KINDS
} kind;

static const struct {
    const char *name, *fill;
} kinds[KINDS] = {
    [WEIGHT] = { "weights", "#3b6fb6" },
    [COPY] = { "weights, half copies", "#7aa6dc" },
    [MOMENTUM] = { "velocities", "#35a79c" },
    [STAT] = { "statistics", "#8c6bb1" },
    [PREPARED] = { "computed from weights alone", "#a6c8ec" },
    [ACTIVATION] = { "activations", "#74b95c" },
    [RECOMPUTED] = { "recomputed activations", "#c4d66b" },
    [GRADIENT] = { "gradients of activations", "#ef8a3c" },
    [WEIGHT_GRADIENT] = { "gradients of weights", "#c9413f" },
    [SCRATCH] = { "scratch of kernels", "#5a5a5a" },
    [OTHER] = { "other", "#c0c0c0" },
};

static const char grey[] = "#666666", grid[] = "#e4e4e4", ink[] = "#111111";

typedef struct {
    const td_program *p;
    const td_graph *g;
    const td_plan *plan;
    const bool *is_setup; /* [nodes] */
    td_text *out;
    uint8_t *value_kinds;   /* [values] */
    int *kernel_index;      /* [nodes + 2] kernels before each node: the time axis */
    int *value;             /* [buffers] the first value in it, or -1 */
    int *n_values;          /* [buffers] */
    int64_t *live;          /* [nodes + 1] bytes at each node, parameters included */
    int n_of[KINDS];        /* buffers of each kind */
    int64_t at_peak[KINDS]; /* their bytes at the peak */
    int64_t total_bytes;
    int peak;     /* node */
    int backward; /* the first node that computes a gradient, or -1 */
} drawing;

/* --- kinds of values -------------------------------------------------------------------------- */

static void ask_operands(const td_node *n, uint8_t *wanted)
{
    for (int k = 0; wanted[n->id] && k < n->n_in; k++)
        wanted[n->in[k]->producer->id] = 1;
}

/* Mark the nodes on which the outputs depend, except the output "finite". */
static void mark_forward(const td_graph *g, uint8_t *wanted)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, TD_OUTPUT_FINITE) != 0 &&
            strcmp(g->outputs[i].name, TD_OUTPUT_NORM) != 0)
            wanted[g->outputs[i].value->producer->id] = 1;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        ask_operands(g->nodes[i], wanted);
}

static kind kind_of_leaf(const td_node *n)
{
    if (td_value_is_input(n->out[0]))
        return OTHER;
    switch ((td_role)((const td_param_attr *)n->attr)->role) {
    case TD_ROLE_STAT:
        return STAT;
    case TD_ROLE_MOMENTUM:
        return MOMENTUM;
    case TD_ROLE_COPY:
        return COPY;
    case TD_ROLE_WEIGHT:
        break;
    }
    return WEIGHT;
}

static bool is_of_weights(kind k)
{
    return k == WEIGHT || k == STAT || k == COPY || k == PREPARED;
}

static kind kind_of(const td_node *n, bool is_forward, bool is_setup, const uint8_t *of)
{
    bool of_weights = n->n_in > 0, of_activations = false;
    bool of_gradients = strstr(n->op->name, "_grad") != NULL;
    if (n->op->is_leaf)
        return kind_of_leaf(n);
    for (int k = 0; k < n->n_in; k++) {
        const kind operand = (kind)of[n->in[k]->id];
        of_weights = of_weights && is_of_weights(operand);
        of_gradients = of_gradients || operand == GRADIENT;
        of_activations = of_activations || operand == ACTIVATION || operand == RECOMPUTED;
    }
    if (of_weights || is_setup)
        return PREPARED;
    if (is_forward)
        return ACTIVATION;
    return of_gradients ? GRADIENT : of_activations ? RECOMPUTED : OTHER;
}

static td_status name_kinds(drawing *d)
{
    const td_graph *g = d->g;
    uint8_t *forward = td_alloc((size_t)g->n_nodes + 1, sizeof *forward);
    if (!forward)
        return TD_ENOMEM;
    mark_forward(g, forward);
    d->backward = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const kind k = kind_of(n, forward[i], d->is_setup[i], d->value_kinds);
        for (int o = 0; o < n->n_out; o++)
            d->value_kinds[n->out[o]->id] = (uint8_t)k;
        if (k == GRADIENT && n->n_out && d->backward < 0)
            d->backward = i;
    }
    for (int i = 0; i < g->n_nodes; i++) /* after all gradients are known */
        if (td_op_is_update(g->nodes[i]->op))
            d->value_kinds[g->nodes[i]->in[2]->id] = WEIGHT_GRADIENT;
    td_free(forward);
    return TD_OK;
}

/* --- lifetimes -------------------------------------------------------------------------------- */

static kind kind_of_buffer(const drawing *d, int b)
{
    if (d->plan->buffers[b].node >= 0)
        return SCRATCH;
    return d->value[b] < 0 ? OTHER : (kind)d->value_kinds[d->value[b]];
}

static void find_values(drawing *d)
{
    for (int b = 0; b < d->plan->n_buffers; b++)
        d->value[b] = -1;
    for (int i = 0; i < d->g->n_nodes; i++)
        for (int o = 0; o < d->g->nodes[i]->n_out; o++) {
            const int v = d->g->nodes[i]->out[o]->id, b = d->plan->slots[v].buffer;
            if (b >= 0 && d->n_values[b]++ == 0)
                d->value[b] = v;
        }
}

/* The lifetime of a buffer in a run after the first: buffers used only by the setup are omitted. */
static void lifetime(const drawing *d, const td_buffer *b, int *first, int *last)
{
    const bool is_past = b->is_setup && !b->is_persistent;
    *first = b->is_persistent || is_past ? 0 : b->first;
    *last = b->is_persistent ? d->g->n_nodes : is_past ? -1 : b->last;
}

static td_status find_peak(drawing *d)
{
    const int n = d->g->n_nodes;
    int first, last;
    int64_t *change = td_alloc((size_t)n + 2, sizeof *change), live = 0;
    if (!change)
        return TD_ENOMEM;
    for (int i = 0; i < d->plan->n_buffers; i++) {
        const td_buffer *b = &d->plan->buffers[i];
        lifetime(d, b, &first, &last);
        change[first] += b->bytes;
        change[last + 1] -= b->bytes;
    }
    for (int i = 0; i <= n; i++) {
        live += change[i];
        d->live[i] = live;
        if (live > d->live[d->peak])
            d->peak = i;
    }
    for (int i = 0; i < d->plan->n_buffers; i++) {
        const td_buffer *b = &d->plan->buffers[i];
        lifetime(d, b, &first, &last);
        const kind k = kind_of_buffer(d, i);
        d->n_of[k]++;
        d->at_peak[k] += first <= d->peak && d->peak <= last ? b->bytes : 0;
    }
    td_free(change);
    return TD_OK;
}

/*
 * Number the kernels.  Leaves and reshapes have none; outputs live for one step after the last
 * node.
 */
static void number_kernels(drawing *d)
{
    const int n = d->g->n_nodes;
    for (int i = 0; i < n; i++)
        d->kernel_index[i + 1] = d->kernel_index[i] + (td_node_has_kernel(d->g->nodes[i]));
    d->kernel_index[n + 1] = d->kernel_index[n] + 1;
}

/* --- axes ------------------------------------------------------------------------------------- */

static double at_kernel(const drawing *d, int kernel_index)
{
    return LEFT + (double)(RIGHT - LEFT) * kernel_index / d->kernel_index[d->g->n_nodes + 1];
}

static double at_node(const drawing *d, int node)
{
    return at_kernel(d, d->kernel_index[node]);
}

static double at_byte(const drawing *d, int64_t byte)
{
    return TOP + PLOT - PLOT * (double)byte / (double)d->total_bytes;
}

static void words(const drawing *d, double x, double y, const char *anchor, const char *fill,
                  const char *text)
{
    td_svg_text(d->out, x, y, &(td_svg_font){ .size = 11, .anchor = anchor, .fill = fill }, text);
}

/* 1, 2 or 5 times a power of ten, for about ten ticks. */
static double step_of(double whole)
{
    static const double steps[] = { 1, 2, 5 };
    double power = 1e-6;
    for (;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (whole / (steps[i] * power) <= 12)
                return steps[i] * power;
}

static void draw_axes(const drawing *d)
{
    char text[48];
    const double mb = (double)d->total_bytes / 1e6, step = step_of(mb);
    for (int i = 0; i * step <= mb; i++) {
        const double y = at_byte(d, (int64_t)(i * step * 1e6));
        td_svg_line(d->out, LEFT, y, RIGHT, y, grid);
        snprintf(text, sizeof text, "%g", i * step);
        words(d, LEFT - 8, y + 4, "end", grey, text);
    }
    td_svg_text(d->out, 22, TOP + PLOT / 2.0,
                &(td_svg_font){ .size = 12, .anchor = "middle", .rotation = -90 }, "address, MB");
    const int n_kernels = d->kernel_index[d->g->n_nodes], by = (int)step_of(n_kernels);
    for (int i = 0; i <= n_kernels; i += by ? by : 1) {
        const double x = at_kernel(d, i);
        td_svg_line(d->out, x, TOP + PLOT, x, TOP + PLOT + 5, grey);
        snprintf(text, sizeof text, "%d", i);
        words(d, x, TOP + PLOT + 17, "middle", grey, text);
    }
    td_svg_text(d->out, (LEFT + RIGHT) / 2.0, TOP + PLOT + BOTTOM - 8,
                &(td_svg_font){ .size = 12, .anchor = "middle" },
                "time: kernels in the order in which they run");
}

/* "layer2" for "layer2.0.conv1"; "" if a node has no layer. */
static void stage_of(const drawing *d, int node, char out[128])
{
    td_profile_layer(d->p, node, out, 128);
    out[isalpha((unsigned char)out[0]) ? strcspn(out, ".") : 0] = '\0';
}

static void name_stage(const drawing *d, int from, int to, const char *name)
{
    const double x1 = at_node(d, from), x2 = at_node(d, to);
    if (!*name || x2 - x1 < LABEL)
        return;
    td_svg_line(d->out, x1 + 1, TOP + PLOT + 24, x2 - 1, TOP + PLOT + 24, grey);
    words(d, (x1 + x2) / 2, TOP + PLOT + 37, "middle", ink, name);
}

/* Draw the stages.  Nodes without a layer belong to the previous one; parameters have no kernel. */
static void draw_stages(const drawing *d)
{
    char name[128], now[128] = "";
    int from = 0;
    for (int i = 0; i < d->g->n_nodes; i++) {
        if (d->g->nodes[i]->op->is_leaf)
            continue;
        stage_of(d, i, name);
        if (!*name || strcmp(name, now) == 0)
            continue;
        name_stage(d, from, i, now);
        memcpy(now, name, sizeof now);
        from = i;
    }
    name_stage(d, from, d->g->n_nodes, now);
}

static void draw_legend(const drawing *d)
{
    char text[96];
    for (int k = 0, n = 0; k < KINDS; k++) {
        if (!d->n_of[k])
            continue;
        const double x = LEFT + n % COLUMNS * LEGEND, y = 52 + n / COLUMNS * 18;
        td_svg_rect(d->out, x, y - 10, 14, 12, kinds[k].fill);
        const double mb = (double)d->at_peak[k] / 1e6;
        snprintf(text, sizeof text, "%s, %.*f MB", kinds[k].name, mb > 0 && mb < 0.01 ? 5 : 2, mb);
        words(d, x + 20, y, NULL, ink, text);
        n++;
    }
}

/* --- buffers ---------------------------------------------------------------------------------- */

static void add_node_name(const drawing *d, int node, td_text *out)
{
    char layer[128];
    if (node >= d->g->n_nodes) {
        td_text_add(out, "the end");
        return;
    }
    td_profile_layer(d->p, node, layer, sizeof layer);
    td_text_add(out, "%s/%s (%d)", layer, d->g->nodes[node]->op->name, d->kernel_index[node]);
}

/*
 * Add "%12 f32[8,64,56,56]: activations, 6.4 MB at 103.1 MB, from layer1.0.conv1/conv2d (12) to
 * ...".
 */
static void add_title(const drawing *d, int i, td_text *out)
{
    const td_buffer *b = &d->plan->buffers[i];
    if (b->node >= 0) {
        td_text_add(out, "scratch");
    } else if (d->value[i] >= 0) {
        const td_value *v = d->g->values[d->value[i]];
        td_text_add(out, "%%%s ", v->name);
        td_type_print(&v->type, out);
        if (d->n_values[i] > 1)
            td_text_add(out, " and %d more in its place", d->n_values[i] - 1);
    }
    td_text_add(out, ": %s, %.4g MB at %.1f MB, ", kinds[kind_of_buffer(d, i)].name,
                (double)b->bytes / 1e6, (double)b->offset / 1e6);
    if (b->is_persistent) {
        td_text_add(out, "always");
        return;
    }
    td_text_add(out, b->first == b->last ? "during " : "from ");
    add_node_name(d, b->first, out);
    if (b->first == b->last)
        return;
    td_text_add(out, " to ");
    add_node_name(d, b->last, out);
}

typedef struct {
    int buffer;
    double x, y, w, h;
} box;

static box box_of(const drawing *d, int i)
{
    int first, last;
    const td_buffer *b = &d->plan->buffers[i];
    lifetime(d, b, &first, &last);
    const double x = at_node(d, first), y = at_byte(d, b->offset + b->bytes);
    return (box){ i, x, y, at_node(d, last + 1) - x, at_byte(d, b->offset) - y };
}

static bool is_outlined(const box *b)
{
    return b->w >= OUTLINED && b->h >= OUTLINED;
}

/* The largest first. */
static int by_area(const void *a, const void *b)
{
    const box *p = a, *q = b;
    const double p_area = p->w * p->h, q_area = q->w * q->h;
    if (p_area != q_area)
        return p_area > q_area ? -1 : 1;
    return p->buffer - q->buffer;
}

static td_status draw_boxes(const drawing *d, const box *boxes, int n, bool with_outline)
{
    td_text title = { 0 };
    if (with_outline)
        td_svg_outline_begin(d->out, "#ffffff", 0.5);
    for (int i = 0; i < n; i++) {
        const box *b = &boxes[i];
        if (is_outlined(b) != with_outline)
            continue;
        title.len = 0;
        add_title(d, b->buffer, &title);
        td_svg_rect_titled(d->out, b->x, b->y, b->w, b->h, kinds[kind_of_buffer(d, b->buffer)].fill,
                           td_text_get(&title));
    }
    if (with_outline)
        td_svg_outline_end(d->out);
    const td_status st = td_text_status(&title);
    td_text_release(&title);
    return st;
}

static void note_omitted(const drawing *d, int n)
{
    char text[96];
    snprintf(text, sizeof text, "not drawn: %d buffers too small or too short to be seen", n);
    if (n > 0)
        words(d, RIGHT, TOP + PLOT + BOTTOM - 8, "end", grey, text);
}

static td_status draw_buffers(const drawing *d)
{
    const int n = d->plan->n_buffers, n_drawn = n < MOST ? n : MOST;
    box *boxes = td_alloc((size_t)n + 1, sizeof *boxes);
    if (!boxes)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        boxes[i] = box_of(d, i);
    qsort(boxes, (size_t)n, sizeof *boxes, by_area);
    td_status st = draw_boxes(d, boxes, n_drawn, true);
    if (st == TD_OK)
        st = draw_boxes(d, boxes, n_drawn, false);
    note_omitted(d, n - n_drawn);
    td_free(boxes);
    return st;
}

/* --- the curve of live bytes ------------------------------------------------------------------ */

static void draw_end_of_forward(const drawing *d)
{
    if (d->backward < 0)
        return;
    const double x = at_node(d, d->backward), xs[] = { x, x }, ys[] = { TOP - 30, TOP + PLOT };
    td_svg_polyline(d->out, xs, ys, 2, grey, "2 3");
    words(d, x - 6, TOP - 24, "end", grey, "forward");
    words(d, x + 6, TOP - 24, NULL, grey, "backward, updates");
}

/* Draw the live bytes at each node as a step curve. */
static td_status draw_live(const drawing *d)
{
    const int n = d->g->n_nodes + 1;
    double *xs = td_alloc(2 * (size_t)n, sizeof *xs), *ys = td_alloc(2 * (size_t)n, sizeof *ys);
    int used = 0;
    for (int i = 0; xs && ys && i < n; i++) {
        const bool is_same = i && d->live[i] == d->live[i - 1];
        if (i && i + 1 < n && (is_same || d->kernel_index[i] == d->kernel_index[i + 1]))
            continue;
        xs[used] = at_node(d, i);
        ys[used] = used ? ys[used - 1] : at_byte(d, d->live[i]);
        xs[used + 1] = xs[used];
        ys[used + 1] = at_byte(d, d->live[i]);
        used += 2;
    }
    const td_status st = xs && ys ? TD_OK : TD_ENOMEM;
    if (st == TD_OK)
        td_svg_polyline(d->out, xs, ys, used, ink, NULL);
    td_free(xs);
    td_free(ys);
    return st;
}

static void draw_peak(const drawing *d)
{
    td_text text = { 0 };
    const double y = at_byte(d, d->live[d->peak]), x = at_node(d, d->peak);
    const double xs[] = { LEFT, RIGHT }, ys[] = { y, y };
    td_svg_polyline(d->out, xs, ys, 2, "#c0392b", "6 4");
    td_svg_line(d->out, x, TOP - 6, x, y, "#c0392b");
    td_text_add(&text, "most alive at once (black line): %.1f MB at ",
                (double)d->live[d->peak] / 1e6);
    add_node_name(d, d->peak, &text);
    const bool is_left = x < (LEFT + RIGHT) / 2.0;
    words(d, x + (is_left ? 4 : -4), TOP - 9, is_left ? NULL : "end", "#c0392b",
          td_text_get(&text));
    td_text_release(&text);
}

static void draw_heading(const drawing *d, const char *what)
{
    td_text text = { 0 };
    td_text_add(&text, "%s: %.1f MB planned, %d buffers; by their contents at the peak:", what,
                (double)d->total_bytes / 1e6, d->plan->n_buffers);
    td_svg_text(d->out, LEFT, 28, &(td_svg_font){ .size = 15, .is_bold = true },
                td_text_get(&text));
    td_text_release(&text);
}

/* --- the drawing ------------------------------------------------------------------------------ */

static td_status draw(drawing *d, const char *what)
{
    TD_TRY(name_kinds(d));
    number_kernels(d);
    find_values(d);
    TD_TRY(find_peak(d));
    td_svg_begin(d->out, WIDTH, TOP + PLOT + BOTTOM, what);
    draw_heading(d, what);
    draw_legend(d);
    draw_axes(d);
    draw_stages(d);
    TD_TRY(draw_buffers(d));
    draw_end_of_forward(d);
    TD_TRY(draw_live(d));
    draw_peak(d);
    td_svg_end(d->out);
    return td_text_status(d->out);
}

td_status td_memory_draw(const td_program *p, const char *what, td_text *svg)
{
    td_status st = TD_ENOMEM;
    const td_program_view view = td_program_view_of(p);
    const td_plan *plan = view.plan;
    const size_t n_buffers = (size_t)plan->n_buffers + 1;
    const int64_t total = plan->persistent_bytes + plan->transient_bytes;
    drawing d = { .p = p,
                  .g = view.graph,
                  .plan = plan,
                  .is_setup = view.is_setup,
                  .out = svg,
                  .total_bytes = total ? total : 1 };
    d.value_kinds = td_alloc((size_t)view.graph->n_values + 1, sizeof *d.value_kinds);
    d.kernel_index = td_alloc((size_t)view.graph->n_nodes + 2, sizeof *d.kernel_index);
    d.value = td_alloc(n_buffers, sizeof *d.value);
    d.n_values = td_alloc(n_buffers, sizeof *d.n_values);
    d.live = td_alloc((size_t)view.graph->n_nodes + 2, sizeof *d.live);
    if (d.value_kinds && d.kernel_index && d.value && d.n_values && d.live)
        st = draw(&d, what);
    td_free(d.value_kinds);
    td_free(d.kernel_index);
    td_free(d.value);
    td_free(d.n_values);
    td_free(d.live);
    return st;
}
