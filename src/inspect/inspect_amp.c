/*
 * inspect_amp.c -- shows the precision of each node, and the reason
 *
 * The graph is the input of the amp pass: composites are decomposed, gradients computed, norms
 * folded for inference.  The pass itself computes the types.  For autocast and O1 to O3, which run
 * before the grad pass, the graph is the pass's output, with gradients through casts.
 */
#include "inspect/inspect.h"

#include <string.h>

#include "ops/ops.h"
#include "pass/amp.h"
#include "pass/pass.h"
#include "runtime/device.h"

static const td_pass *pass_named(const char *name)
{
    const td_pass *p = NULL;
    for (int i = 0; (p = td_pass_at(i)) != NULL; i++)
        if (td_text_in_list(p->name, name))
            break;
    return p;
}

/*
 * Build the input graph of the pass amp; `amp`: options for autocast, which runs earlier, or NULL.
 */
static td_status prepare(const td_inspection *q, const td_target *target, const td_amp_opts *amp,
                         td_graph **out)
{
    td_graph *g, *next;
    *out = NULL;
    TD_TRY(td_inspect_build(q, &g));
    for (int i = 0; td_pass_at(i) != pass_named("amp"); i++) {
        td_status st = td_pass_run(td_pass_at(i), g, target, amp, &next);
        td_graph_free(g);
        TD_TRY(st);
        g = next;
    }
    *out = g;
    return TD_OK;
}

/* Does the node have a name?  The label of others is a number, "12". */
static bool is_named(const td_node *n)
{
    const char *label = td_node_label(n);
    return label[strspn(label, "0123456789")] != '\0';
}

/* "backbone.conv1"; "12:backbone.conv1" for node 12, which follows it along first operands. */
static void add_label(const td_node *n, td_text *out)
{
    const td_node *named = n;
    td_text_add(out, "%s", td_node_label(n));
    while (!is_named(named) && named->n_in)
        named = named->in[0]->producer;
    if (named != n)
        td_text_add(out, ":%s", td_node_label(named));
}

static int label_width(const td_amp_explanation *e)
{
    size_t width = sizeof "layer" - 1;
    for (int i = 0; i < e->n_rows; i++) {
        td_text label = { 0 };
        add_label(e->rows[i].node, &label);
        const size_t n = strlen(td_text_get(&label));
        width = n > width ? n : width;
        td_text_release(&label);
    }
    return (int)width;
}

static void add_reason(const td_amp_row *r, td_text *out)
{
    if (r->is_gradient_sum)
        td_text_add(out, "sum of a weight's gradients");
    else if (r->colour == ' ' || r->colour == '-')
        td_text_add(out, "no float32 tensor");
    else if (r->step == TD_AMP_STEP_NONE)
        td_text_add(out, r->class == TD_AMP_NONE ? "in no list" : "not between ops that are half");
    else
        td_text_add(out, "%s", td_amp_step_name(r->step));
    if (r->cause && r->cause != r->node)
        td_text_add(out, ": %s (%s)", td_node_label(r->cause), r->cause->op->name);
}

static void add_casts(const td_amp_row *r, const char *half, td_text *out)
{
    if (r->casts_to_half)
        td_text_add(out, " [cast to %s]", half);
    if (r->casts_to_wide)
        td_text_add(out, " [cast to fp32]");
}

static void row_text(const td_amp_row *r, const char *half, int width, td_text *out)
{
    td_text label = { 0 };
    add_label(r->node, &label);
    td_text_add(out, "%-*s %-26s %-9s %-5s ", width, td_text_get(&label), r->node->op->name,
                td_amp_class_name(r->class), r->is_half ? half : "fp32");
    add_reason(r, out);
    add_casts(r, half, out);
    td_text_add(out, "\n");
    td_text_release(&label);
}

static void row_json(const td_amp_row *r, const char *half, td_text *out)
{
    td_text why = { 0 }, label = { 0 };
    char colour[2] = { r->colour, '\0' };
    add_reason(r, &why);
    add_label(r->node, &label);
    td_json_add_text(out, "name", td_text_get(&label));
    td_json_add_text(out, "op", r->node->op->name);
    td_json_add_text(out, "tf_op", r->node->op->tf_op ? r->node->op->tf_op : "");
    td_json_add_text(out, "class", td_amp_class_name(r->class));
    td_json_add_text(out, "colour", colour);
    td_json_add_text(out, "type", r->is_half ? half : "fp32");
    td_json_add_text(out, "reason", td_text_get(&why));
    td_json_add(out, "casts_to_half", r->casts_to_half);
    td_json_add(out, "casts_to_fp32", r->casts_to_wide);
    td_text_add(out, "}");
    td_text_release(&why);
    td_text_release(&label);
}

/* Bytes saved by results in half precision. */
static int64_t saved_bytes(const td_amp_explanation *e)
{
    int64_t saved = 0;
    for (int i = 0; i < e->n_rows; i++)
        for (int k = 0; e->rows[i].is_half && k < e->rows[i].node->n_out; k++)
            if (!(e->rows[i].node->op->wide_out >> k & 1) &&
                e->rows[i].node->out[k]->type.dtype == TD_DT_F32)
                saved += td_type_bytes(&e->rows[i].node->out[k]->type) / 2;
    return saved;
}

/* Sums over all nodes of an op. */
typedef struct {
    int nodes, half, to_half, to_wide;
} tally;

static tally tally_of(const td_amp_explanation *e, const td_op *op)
{
    tally t = { 0 };
    for (int i = 0; i < e->n_rows; i++) {
        const td_amp_row *r = &e->rows[i];
        if (op && r->node->op != op)
            continue;
        t.nodes++;
        t.half += r->is_half;
        t.to_half += r->casts_to_half;
        t.to_wide += r->casts_to_wide;
    }
    return t;
}

/* Is row `i` the first of its op? */
static bool is_first(const td_amp_explanation *e, int i)
{
    for (int k = 0; k < i; k++)
        if (e->rows[k].node->op == e->rows[i].node->op)
            return false;
    return true;
}

static void show_json(const td_amp_explanation *e, const char *half, int n_left, td_text *out)
{
    td_text_add(out, "{\"nodes\": [");
    for (int i = 0; i < e->n_rows; i++) {
        td_text_add(out, i ? ", {" : "{");
        row_json(&e->rows[i], half, out);
    }
    td_text_add(out, "]");
    td_json_add_text(out, "precision", half);
    td_json_add_text(out, "message", e->message);
    td_json_add(out, "n_nodes", e->n_rows);
    td_json_add(out, "n_half", tally_of(e, NULL).half);
    td_json_add(out, "n_converted", e->n_converted);
    td_json_add(out, "n_casts", e->n_casts);
    td_json_add(out, "n_casts_to_half", e->n_casts_to_half);
    td_json_add(out, "n_casts_left", n_left);
    td_json_add(out, "saved_bytes", (double)saved_bytes(e));
    td_text_add(out, "}\n");
}

static void show_ops(const td_amp_explanation *e, const char *half, td_text *out)
{
    td_text_add(out, "\n%-26s %-9s %6s %6s %6s %14s %14s\n", "op", "list", "nodes", half, "fp32",
                "casts to half", "casts to fp32");
    for (int i = 0; i < e->n_rows; i++) {
        const tally t = tally_of(e, e->rows[i].node->op);
        if (is_first(e, i))
            td_text_add(out, "%-26s %-9s %6d %6d %6d %14d %14d\n", e->rows[i].node->op->name,
                        td_amp_class_name(e->rows[i].class), t.nodes, t.half, t.nodes - t.half,
                        t.to_half, t.to_wide);
    }
}

/* `n_stored`: number of casts of parameters and constants, all to half; -1: unknown. */
static void add_cast_sums(int to_half, int n_stored, int to_wide, int n_left, const char *half,
                          td_text *out)
{
    td_text_add(out, "%d casts: %d to %s", to_half + to_wide, to_half, half);
    if (n_stored >= 0)
        td_text_add(out, " (%d of parameters and constants)", n_stored);
    td_text_add(out, ", %d to fp32; fusion leaves %d of the %d\n", to_wide, n_left,
                to_half + to_wide);
}

/* `n_outputs`: the graph's outputs, which e->message counts as nodes; they are not rows here. */
static void show_text(const td_amp_explanation *e, const char *half, int n_left, int n_outputs,
                      td_text *out)
{
    const int width = label_width(e);
    const tally all = tally_of(e, NULL);
    td_text_add(out, "%-*s %-26s %-9s %-5s why\n", width, "layer", "op", "list", "type");
    for (int i = 0; i < e->n_rows; i++)
        if (!e->rows[i].node->op->is_leaf || e->rows[i].casts_to_half)
            row_text(&e->rows[i], half, width, out);
    show_ops(e, half, out);
    td_text_add(out, "\n%s\n", e->message);
    td_text_add(out,
                "%d of %d nodes in %s (of %d with the outputs of the graph, as TensorFlow counts "
                "them); results take %.1f MB less\n",
                all.half, all.nodes, half, all.nodes + n_outputs, (double)saved_bytes(e) / 1e6);
    add_cast_sums(all.to_half, all.to_half - e->n_casts_to_half, all.to_wide, n_left, half, out);
}

static int count_casts(const td_graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == &td_op_cast;
    return n;
}

/* Write the log of opts->log_path, and count the casts that remain after fusion. */
static td_status rewrite(const td_graph *g, const td_amp_opts *amp, const td_target *target,
                         int *n_left)
{
    td_graph *after, *fused = NULL;
    td_amp_opts silent = *amp;
    silent.is_silent = true;
    TD_TRY(td_pass_run(pass_named("amp"), g, target, &silent, &after));
    td_status st = amp->log_path ? td_amp_write_log(g, after, amp) : TD_OK;
    if (st == TD_OK)
        st = td_pass_run(pass_named("fuse"), after, target, &silent, &fused);
    if (st == TD_OK)
        *n_left = count_casts(fused);
    td_graph_free(fused);
    td_graph_free(after);
    return st;
}

static td_status explain(const td_inspection *q, const td_amp_opts *amp, const td_target *target,
                         td_text *out)
{
    td_graph *g;
    td_amp_explanation e;
    int n_left = 0;
    TD_TRY(prepare(q, target, NULL, &g));
    td_status st = rewrite(g, amp, target, &n_left);
    if (st == TD_OK)
        st = td_amp_explain(g, amp, &e);
    if (st == TD_OK) {
        if (q->opts->json)
            show_json(&e, td_amp_precision_name(amp), n_left, out);
        else
            show_text(&e, td_amp_precision_name(amp), n_left, g->n_outputs, out);
        td_amp_explanation_release(&e);
    }
    td_graph_free(g);
    return st;
}

/* --- autocast, O1 to O3 ----------------------------------------------------------------------- */

/* Numbers of nodes and casts. */
typedef struct {
    int nodes, half, to_half, to_wide;
} autocast_sums;

static bool is_cast(const td_node *n)
{
    return n->op == &td_op_cast;
}

static bool is_half(const td_node *n)
{
    return n->n_out && td_dtype_is_half(n->out[0]->type.dtype);
}

/* Count the casts of a node's results. */
static void count_own_casts(const td_graph *g, const td_node *n, autocast_sums *s)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (is_cast(g->nodes[i]) && g->nodes[i]->in[0]->producer == n)
            *(is_half(g->nodes[i]) ? &s->to_half : &s->to_wide) += 1;
}

static const char *autocast_reason(const td_node *n, const char *rule)
{
    if (n->op->is_leaf)
        return "as it is stored";
    if (!n->op->tf_op || td_node_has_effect(n))
        return "its operands are not cast";
    return strcmp(rule, "half") == 0   ? "its operands are cast to half"
           : strcmp(rule, "fp32") == 0 ? "its operands are cast to fp32"
                                       : "the type of its operands";
}

static void autocast_row(const td_inspection *q, const td_amp_opts *amp, const td_node *n,
                         const autocast_sums *own, int width, td_text *out)
{
    const char *half = td_amp_precision_name(amp), *type = is_half(n) ? half : "fp32";
    const char *rule = n->op->is_leaf ? "-" : td_autocast_rule(amp, n->op);
    const td_amp_row casts = { .casts_to_half = own->to_half, .casts_to_wide = own->to_wide };
    td_text label = { 0 };
    add_label(n, &label);
    if (q->opts->json) {
        td_json_add_text(out, "name", td_text_get(&label));
        td_json_add_text(out, "op", n->op->name);
        td_json_add_text(out, "rule", rule);
        td_json_add_text(out, "type", type);
        td_json_add_text(out, "reason", autocast_reason(n, rule));
        td_json_add(out, "casts_to_half", own->to_half);
        td_json_add(out, "casts_to_fp32", own->to_wide);
        td_text_add(out, "}");
    } else {
        td_text_add(out, "%-*s %-26s %-9s %-5s %s", width, td_text_get(&label), n->op->name, rule,
                    type, autocast_reason(n, rule));
        add_casts(&casts, half, out);
        td_text_add(out, "\n");
    }
    td_text_release(&label);
}

static void show_autocast(const td_inspection *q, const td_amp_opts *amp, const td_graph *g,
                          int n_left, td_text *out)
{
    const bool json = q->opts->json;
    const int width = 28;
    const char *half = td_amp_precision_name(amp);
    autocast_sums all = { 0 };
    if (json)
        td_text_add(out, "{\"nodes\": [");
    else
        td_text_add(out, "%-*s %-26s %-9s %-5s why\n", width, "layer", "op", "rule", "type");
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        autocast_sums own = { 0 };
        if (is_cast(n))
            continue;
        count_own_casts(g, n, &own);
        if (json)
            td_text_add(out, all.nodes ? ", {" : "{");
        if (json || !n->op->is_leaf || own.to_half)
            autocast_row(q, amp, n, &own, width, out);
        all.nodes++;
        all.half += is_half(n);
        all.to_half += own.to_half;
        all.to_wide += own.to_wide;
    }
    if (!json) {
        td_text_add(out, "\n%d of %d nodes in %s\n", all.half, all.nodes, half);
        add_cast_sums(all.to_half, -1, all.to_wide, n_left, half, out);
        return;
    }
    td_text_add(out, "]");
    td_json_add_text(out, "precision", half);
    td_json_add(out, "n_nodes", all.nodes);
    td_json_add(out, "n_half", all.half);
    td_json_add(out, "n_casts", all.to_half + all.to_wide);
    td_json_add(out, "n_casts_to_half", all.to_half);
    td_json_add(out, "n_casts_left", n_left);
    td_text_add(out, "}\n");
}

/* Show the graph after the pass, including gradients, which depend on its casts. */
static td_status explain_autocast(const td_inspection *q, const td_amp_opts *amp,
                                  const td_target *target, td_text *out)
{
    td_amp_opts silent = *amp;
    td_graph *g;
    int n_left = 0;
    silent.is_silent = true;
    silent.log_path = NULL;
    TD_TRY(prepare(q, target, &silent, &g));
    const td_status st = rewrite(g, &silent, target, &n_left);
    if (st == TD_OK)
        show_autocast(q, amp, g, n_left, out);
    td_graph_free(g);
    return st;
}

td_status td_inspect_amp(const td_inspection *q, td_text *out)
{
    const bool is_autocast = q->opts->amp.level >= TD_AMP_LEVEL_AUTOCAST;
    td_amp_opts amp = q->opts->amp;
    td_device *dev;
    TD_TRY(td_device_open(q->opts->device.name, &dev));
    td_status st = td_amp_resolve(&amp, dev);
    if (st == TD_OK && td_amp_dtype(&amp) == TD_DT_F32)
        st =
            td_error(TD_EUSAGE,
                     "inspect amp requires --precision bf16 or fp16: nothing is rewritten in fp32");
    if (st == TD_OK)
        st = is_autocast ? explain_autocast(q, &amp, &dev->target, out)
                         : explain(q, &amp, &dev->target, out);
    td_device_close(dev);
    return st;
}
