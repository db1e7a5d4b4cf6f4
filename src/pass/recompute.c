/*
 * recompute.c -- recomputes cheap values that the backward pass reads again
 *
 *     %x = conv2d ...
 *     %y, %m, %v, %k = batch_norm_relu %x, %g, %b
 *     ... conv2d %y, ...
 *     ... the peak ...                       ->   ... the peak ...
 *                                                 %z = batch_norm_relu_infer %x, %g, %b, %m, %v
 *     ... conv2d_grad_w ..., %y ...               ... conv2d_grad_w ..., %z ...
 *
 * The gradient of the norm needs %x anyway, so %y need not be alive at the point of peak memory.
 * The peak then moves, and the next values are chosen; each at most once.  Results are bit-equal.
 * Source: Bulo et al. 2018, In-place activated batch norm;
 * Chen et al. 2016, Training deep nets with sublinear memory cost.
 */
#include <string.h>

#include "ops/ops.h"
#include "pass/pass.h"

/* values below 1/WORTH of the peak are not worth a node */
#define WORTH 1000

/* A value's readers, as node ids: those of the first value (%y) and those of the recomputed one
   (%z). */
typedef struct {
    int last;     /* the last reader of all; the producer if there is none */
    int early;    /* the last reader of the first value; `last` if not split */
    int late;     /* the first reader of the recomputed value; 0: none */
    bool is_kept; /* may not be recomputed: an output, reshaped, or done already */
} reading;

typedef struct {
    const td_graph *g;
    reading *read;   /* [values] */
    int *written;    /* [values] the first update of a parameter; 0: none */
    int64_t *begins; /* [nodes] bytes recomputed before a node */
    int64_t *ends;   /* [nodes] bytes freed after it */
    bool *is_done;   /* [values] recomputed already */
    int peak;        /* the node with the most live bytes */
    int64_t peak_bytes;
} recompute_state;

/* --- readers ---------------------------------------------------------------------------------- */

static bool reads(const td_node *n, int k)
{
    return !td_is_shape_only(n, k);
}

/* the norm that `again` recomputes, or NULL */
static const td_node *repeated(const td_node *again)
{
    if (again->op != &td_op_batch_norm_relu_infer)
        return NULL;
    const td_node *n = again->in[3]->producer;
    return n->op == &td_op_batch_norm_relu && n->in[0] == again->in[0] ? n : NULL;
}

/* readers of a reshape count as readers of its operand */
static void find_readers(recompute_state *s)
{
    const td_graph *g = s->g;
    for (int v = 0; v < g->n_values; v++)
        s->read[v].last = g->values[v]->producer->id;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (reads(g->nodes[i], k))
                s->read[g->nodes[i]->in[k]->id].last = i;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (n->op->is_alias && s->read[n->out[0]->id].last > s->read[n->in[0]->id].last)
            s->read[n->in[0]->id].last = s->read[n->out[0]->id].last;
        for (int k = 0; k < n->n_in; k++)
            if (n->op->writes >> k & 1)
                s->written[td_value_root(n->in[k])->id] = i;
    }
    for (int v = 0; v < g->n_values; v++)
        s->read[v].early = s->read[v].last;
}

static void find_kept(recompute_state *s)
{
    const td_graph *g = s->g;
    for (int i = 0; i < g->n_outputs; i++)
        s->read[g->outputs[i].value->id].is_kept = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i], *first = repeated(n);
        if (n->op->is_alias)
            s->read[n->in[0]->id].is_kept = true;
        if (first)
            s->read[first->out[0]->id].is_kept = true;
    }
}

/* --- the peak --------------------------------------------------------------------------------- */

static void find_peak(recompute_state *s)
{
    const td_graph *g = s->g;
    int64_t alive = 0;
    memset(s->begins, 0, (size_t)g->n_nodes * sizeof *s->begins);
    memset(s->ends, 0, (size_t)g->n_nodes * sizeof *s->ends);
    for (int v = 0; v < g->n_values; v++) {
        const td_node *by = g->values[v]->producer;
        const reading *r = &s->read[v];
        const int64_t bytes =
            by->op->is_leaf || by->op->is_alias ? 0 : td_type_bytes(&g->values[v]->type);
        s->begins[by->id] += bytes;
        s->ends[r->early] += bytes;
        s->begins[r->late] += r->late ? bytes : 0;
        s->ends[r->last] += r->late ? bytes : 0;
    }
    s->peak_bytes = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        alive += s->begins[i];
        if (alive > s->peak_bytes) {
            s->peak_bytes = alive;
            s->peak = i;
        }
        alive -= s->ends[i];
    }
}

/* --- the choice ------------------------------------------------------------------------------- */

/* is x the result of a batch norm with relu, and alive at the peak only for later readers? */
static bool is_candidate(const recompute_state *s, const td_node *n)
{
    if (n->op != &td_op_batch_norm_relu)
        return false;
    const reading *r = &s->read[n->out[0]->id];
    return !r->is_kept && !r->late && n->id < s->peak && r->last > s->peak &&
           td_type_bytes(&n->out[0]->type) >= s->peak_bytes / WORTH;
}

/* are the operands available and unchanged at node `at`? */
static bool is_possible(const recompute_state *s, const td_node *n, int at)
{
    for (int k = 1; k < n->n_in; k++) {
        const int written = s->written[td_value_root(n->in[k])->id];
        if (written && written < at)
            return false;
    }
    return s->read[n->in[0]->id].last >= at;
}

/* splits the readers of the candidates at the peak; returns their number */
static int choose(recompute_state *s, int *early, int *late)
{
    const td_graph *g = s->g;
    int n_chosen = 0;
    for (int v = 0; v < g->n_values; v++) {
        early[v] = g->values[v]->producer->id;
        late[v] = 0;
    }
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const int v = g->nodes[i]->in[k]->id;
            if (reads(g->nodes[i], k) && i <= s->peak)
                early[v] = i;
            else if (reads(g->nodes[i], k) && !late[v])
                late[v] = i;
        }
    for (int i = 0; i < s->peak; i++) {
        const td_node *n = g->nodes[i];
        if (!is_candidate(s, n) || !is_possible(s, n, late[n->out[0]->id]))
            continue;
        reading *r = &s->read[n->out[0]->id];
        r->early = early[n->out[0]->id];
        r->late = late[n->out[0]->id];
        n_chosen++;
    }
    return n_chosen;
}

/* --- the new graph ---------------------------------------------------------------------------- */

static void emit_again(td_rewriter *rw, const td_value *y)
{
    const td_node *n = y->producer;
    td_value *in[] = { td_rw_get(rw, n->in[0]), td_rw_get(rw, n->in[1]), td_rw_get(rw, n->in[2]),
                       td_rw_get(rw, n->out[1]), td_rw_get(rw, n->out[2]) };
    td_value *z = td_emit_n(rw->b, &td_op_batch_norm_relu_infer, n->attr, 5, in, NULL);
    td_build_set_layout(rw->b, z, y->type.layout);
    rw->map[y->id] = z; /* the first value keeps the name */
    rw->n_changed++;
}

static void emit_all(td_rewriter *rw, recompute_state *s)
{
    for (int i = 0; i < s->g->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = s->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const int v = n->in[k]->id;
            if (s->read[v].late && i >= s->read[v].late && !s->is_done[v]) {
                s->is_done[v] = true;
                emit_again(rw, n->in[k]);
            }
        }
        td_rw_copy(rw, n);
    }
}

static void recompute_run(td_rewriter *rw)
{
    const size_t n_values = (size_t)rw->old->n_values + 1, n_nodes = (size_t)rw->old->n_nodes + 1;
    recompute_state s = { .g = rw->old,
                          .read = td_alloc(n_values, sizeof *s.read),
                          .written = td_alloc(n_values, sizeof *s.written),
                          .begins = td_alloc(n_nodes, sizeof *s.begins),
                          .ends = td_alloc(n_nodes, sizeof *s.ends),
                          .is_done = td_alloc(n_values, sizeof *s.is_done) };
    int *split = td_alloc(2 * n_values, sizeof *split);
    if (s.read && s.written && s.begins && s.ends && s.is_done && split) {
        find_readers(&s);
        find_kept(&s);
        do
            find_peak(&s);
        while (choose(&s, split, split + n_values));
        emit_all(rw, &s);
    } else {
        td_build_fail(rw->b, TD_ENOMEM);
    }
    td_free(s.read);
    td_free(s.written);
    td_free(s.begins);
    td_free(s.ends);
    td_free(s.is_done);
    td_free(split);
}

const td_pass td_pass_recompute = {
    .name = "recompute",
    .summary = "work out again what is cheap, instead of keeping it for the backward half",
    .counts = "values worked out again",
    .run = recompute_run,
};
