/*
 * amp_stats.c -- writes one JSON line for each observed step
 *
 * The kind of a tensor follows from the executed graph:
 *
 *     activation   the loss or the logits depend on it
 *     gradient     an update's gradient depends on it, the loss does not; its producer is an op
 *                  "..._grad..." or has a gradient as operand
 *     weight       parameter, and values computed from parameters only: its copy in half
 *     other        whether gradients are finite, gradients' seed
 */
#include "profiler/amp_stats.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "profiler/exponent_stats.h"
#include "runtime/program_view.h"

typedef enum {
    KIND_OTHER,
    KIND_INPUT,
    KIND_WEIGHT,
    KIND_STAT,
    KIND_MOMENTUM,
    KIND_ACTIVATION,
    KIND_GRADIENT
} kind;

static const char *const kind_names[] = { "other",    "input",      "weight",  "stat",
                                          "momentum", "activation", "gradient" };

struct td_amp_stats {
    FILE *f;
    char *path;
    int64_t every;
    char precision[16];
    uint8_t *kinds;  /* [graph values] */
    const char **of; /* [graph values] the parameter that a gradient updates, or NULL */
    const td_graph *graph;
    bool is_observing; /* true between begin and end of an observed step */
    td_text line;      /* the line of that step */
    int n_tensors;
    td_status st; /* first failure while observing */
};

/* --- kinds of values -------------------------------------------------------------------------- */

/* bits: what depends on a node */
enum { FOR_LOSS = 1, FOR_UPDATE = 2 };

static void mark_producer(uint8_t *wanted, const td_value *v, unsigned what)
{
    wanted[v->producer->id] = (uint8_t)(wanted[v->producer->id] | what);
}

/* walks backwards to find the nodes that the loss and the updates' gradients depend on */
static void mark_wanted(const td_graph *g, uint8_t *wanted, const char **of)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, TD_OUTPUT_FINITE) != 0 &&
            strcmp(g->outputs[i].name, TD_OUTPUT_NORM) != 0)
            mark_producer(wanted, g->outputs[i].value, FOR_LOSS);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (td_op_is_update(n->op)) {
            mark_producer(wanted, n->in[2], FOR_UPDATE);
            of[n->in[2]->id] = n->in[0]->name;
        }
        for (int k = 0; k < n->n_in; k++)
            mark_producer(wanted, n->in[k], wanted[i]);
    }
}

static kind kind_of_param(const td_node *n)
{
    switch ((td_role)((const td_param_attr *)n->attr)->role) {
    case TD_ROLE_STAT:
        return KIND_STAT;
    case TD_ROLE_MOMENTUM:
        return KIND_MOMENTUM;
    case TD_ROLE_WEIGHT:
    case TD_ROLE_COPY:
        break;
    }
    return KIND_WEIGHT;
}

static kind kind_of(const td_node *n, unsigned wanted, const uint8_t *kinds)
{
    bool of_weights = n->n_in > 0, of_gradients = strstr(n->op->name, "_grad") != NULL;
    if (n->op->is_leaf)
        return td_value_is_input(n->out[0]) ? KIND_INPUT : kind_of_param(n);
    for (int k = 0; k < n->n_in; k++) {
        of_weights = of_weights && kinds[n->in[k]->id] == KIND_WEIGHT;
        of_gradients = of_gradients || kinds[n->in[k]->id] == KIND_GRADIENT;
    }
    if (of_weights)
        return KIND_WEIGHT;
    if (wanted & FOR_LOSS)
        return KIND_ACTIVATION;
    return wanted & FOR_UPDATE && of_gradients ? KIND_GRADIENT : KIND_OTHER;
}

static td_status name_kinds(td_amp_stats *s)
{
    const td_graph *g = s->graph;
    uint8_t *wanted = td_alloc((size_t)g->n_nodes + 1, sizeof *wanted);
    s->kinds = td_alloc((size_t)g->n_values + 1, sizeof *s->kinds);
    s->of = td_alloc((size_t)g->n_values + 1, sizeof *s->of);
    if (wanted && s->kinds && s->of) {
        mark_wanted(g, wanted, s->of);
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; k < g->nodes[i]->n_out; k++)
                s->kinds[g->nodes[i]->out[k]->id] =
                    (uint8_t)kind_of(g->nodes[i], wanted[i], s->kinds);
    }
    td_free(wanted);
    return wanted && s->kinds && s->of ? TD_OK : TD_ENOMEM;
}

/* --- a tensor --------------------------------------------------------------------------------- */

static void add_half(td_half_type h, const td_magnitudes *m, td_text *out)
{
    const double n = (double)m->n;
    td_text_add(out, ", \"%s\": {", td_half_ranges[h].name);
    td_json_add(out, "overflow", (double)m->n_over[h] / n);
    td_json_add(out, "below_subnormal", (double)m->n_lost[h] / n);
    td_json_add(out, "below_normal", (double)m->n_below_normal[h] / n);
    td_text_add(out, "}");
}

/* ", "exponents": {"first": -30, "counts": [3, 0, 7]}": from the lowest to the highest exponent
   that occurs */
static void add_exponents(const td_magnitudes *m, td_text *out)
{
    int first = 0, end = TD_EXPONENT_BINS;
    while (first < end && !m->exponent[first])
        first++;
    while (end > first && !m->exponent[end - 1])
        end--;
    td_text_add(out, ", \"exponents\": {\"first\": %d, \"counts\": [",
                first < end ? first + TD_EXPONENT_MIN : 0);
    for (int i = first; i < end; i++)
        td_text_add(out, i > first ? ", %lld" : "%lld", (long long)m->exponent[i]);
    td_text_add(out, "]}");
}

/* the layer of a weight, of its half copy, or of one of these in another layout; NULL: none */
static const char *weight_label(const td_amp_stats *s, const td_value *w)
{
    if (s->kinds[w->id] != KIND_WEIGHT)
        return NULL;
    while (w->producer->n_in > 0)
        w = w->producer->in[0];
    const td_param_attr *a = td_value_is_param(w) ? w->producer->attr : NULL;
    const td_value *master = a && a->role == TD_ROLE_COPY ? td_graph_find(s->graph, a->of) : w;
    return td_node_label((master ? master : w)->producer);
}

static const char *label_of(const td_amp_stats *s, const td_value *v, const td_observation *o)
{
    const char *label = v ? weight_label(s, v) : NULL;
    for (int k = 0; v && k < v->producer->n_in && !label; k++)
        label = weight_label(s, v->producer->in[k]);
    return label ? label : o->label;
}

static void add_tensor(td_amp_stats *s, const td_observation *o, const td_magnitudes *m)
{
    const td_value *v = td_graph_find(s->graph, o->name);
    const kind k = v ? (kind)s->kinds[v->id] : KIND_OTHER;
    td_text *out = &s->line;
    td_text_add(out, s->n_tensors++ ? ", {" : "{");
    td_json_add_text(out, "name", o->name);
    td_json_add_text(out, "label", label_of(s, v, o));
    td_json_add_text(out, "op", o->op);
    td_json_add_text(out, "kind", kind_names[k]);
    if (v && s->of[v->id])
        td_json_add_text(out, "gradient_of", s->of[v->id]);
    td_json_add_text(out, "dtype", td_dtype_name(o->type.dtype));
    td_json_add(out, "elements", (double)m->n);
    td_json_add(out, "largest", m->largest);
    td_json_add(out, "zero", (double)m->n_zero / (double)m->n);
    td_json_add(out, "infinite", (double)m->n_infinite);
    td_json_add(out, "nan", (double)m->n_nan);
    for (int h = 0; h < TD_N_HALF; h++)
        add_half((td_half_type)h, m, out);
    if (k == KIND_GRADIENT)
        add_exponents(m, out);
    td_text_add(out, "}");
}

static void observe(void *ctx, const td_observation *o)
{
    td_amp_stats *s = ctx;
    td_magnitudes m;
    if (s->st != TD_OK || !td_dtype_is_float(o->type.dtype))
        return;
    s->st = td_magnitudes_count(&o->type, o->data, &m);
    if (s->st == TD_OK)
        add_tensor(s, o, &m);
}

/* --- a step ----------------------------------------------------------------------------------- */

static td_status write_line(td_amp_stats *s)
{
    td_text_add(&s->line, "\n");
    TD_TRY(td_text_status(&s->line));
    if (fwrite(s->line.data, 1, s->line.len, s->f) != s->line.len || fflush(s->f) != 0)
        return td_error_errno(TD_EIO, "cannot write statistics '%s'", s->path);
    return TD_OK;
}

static void begin_line(td_amp_stats *s, const td_amp_place *at)
{
    td_text *out = &s->line;
    td_text_add(out, "{");
    td_json_add(out, "step", (double)at->step);
    td_json_add(out, "epoch", (double)at->epoch);
    td_json_add(out, "iteration", (double)at->iteration);
    td_json_add_text(out, "precision", s->precision);
    td_json_add(out, "loss_scale", at->loss_scale);
    td_text_add(out, ", \"tensors\": [");
    s->n_tensors = 0;
}

static void end_line(td_amp_stats *s, const td_program *p)
{
    const float *loss = td_program_output(p, "loss", NULL);
    const float *finite = td_program_output(p, TD_OUTPUT_FINITE, NULL);
    td_text_add(&s->line, "]");
    if (loss)
        td_json_add(&s->line, "loss", (double)*loss);
    td_text_add(&s->line, ", \"skipped\": %s}", finite && *finite == 0 ? "true" : "false");
}

void td_amp_stats_begin(td_amp_stats *s, td_program *p, const td_amp_place *at)
{
    if (!s || (at->step - 1) % s->every)
        return;
    begin_line(s, at);
    s->is_observing = true;
    td_program_observe(p, observe, s);
}

td_status td_amp_stats_end(td_amp_stats *s, td_program *p, td_status st)
{
    if (!s || !s->is_observing)
        return st;
    td_program_observe(p, NULL, NULL);
    s->is_observing = false;
    if (st == TD_OK)
        st = s->st;
    if (st == TD_OK) {
        end_line(s, p);
        st = write_line(s);
    }
    td_text_release(&s->line);
    return st;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void release(td_amp_stats *s)
{
    td_text_release(&s->line);
    td_free(s->kinds);
    td_free(s->of);
    td_free(s->path);
    td_free(s);
}

static td_status open_file(td_amp_stats *s, const char *path)
{
    s->path = td_copy_text(path);
    if (!s->path)
        return TD_ENOMEM;
    s->f = fopen(path, "we");
    return s->f ? TD_OK : td_error_errno(TD_EIO, "cannot write statistics '%s'", path);
}

td_status td_amp_stats_open(const char *path, int64_t every, const char *precision, td_program *p,
                            td_amp_stats **out)
{
    *out = NULL;
    if (!path)
        return TD_OK;
    td_amp_stats *s = TD_NEW(td_amp_stats);
    if (!s)
        return TD_ENOMEM;
    s->every = every;
    s->graph = td_program_view_of(p).graph;
    snprintf(s->precision, sizeof s->precision, "%s", precision);
    td_status st = name_kinds(s);
    if (st == TD_OK)
        st = open_file(s, path);
    if (st == TD_OK) {
        *out = s;
        return TD_OK;
    }
    release(s);
    return st;
}

td_status td_amp_stats_close(td_amp_stats *s)
{
    td_status st = TD_OK;
    if (!s)
        return TD_OK;
    if (fclose(s->f) != 0)
        st = td_error_errno(TD_EIO, "cannot write statistics '%s'", s->path);
    release(s);
    return st;
}
