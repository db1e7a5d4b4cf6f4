/*
 * inspect_amp.c -- what mixed precision does to each node, and why
 *
 * The graph is the one that the amp pass sees: composites written out, gradients worked out, norms
 * folded where it is inference.  The painting is the pass's own.
 */
#include "train/inspect.h"

#include "pass/amp.h"
#include "pass/pass.h"
#include "rt/device.h"

static const td_pass *pass_named(const char *name)
{
    const td_pass *p = NULL;
    for (int i = 0; (p = td_pass_at(i)) != NULL; i++)
        if (td_pass_in_list(p->name, name))
            break;
    return p;
}

/* the graph as it reaches the pass amp */
static td_status prepare(const td_inspection *q, const td_target *target, td_graph **out)
{
    td_graph *g, *next;
    *out = NULL;
    TD_TRY(td_inspect_build(q, &g));
    for (int i = 0; td_pass_at(i) != pass_named("amp"); i++) {
        td_status st = td_pass_run(td_pass_at(i), g, target, NULL, &next);
        td_graph_free(g);
        TD_TRY(st);
        g = next;
    }
    *out = g;
    return TD_OK;
}

static void add_reason(const td_amp_row *r, td_text *out)
{
    if (r->colour == ' ' || r->colour == '-')
        td_text_add(out, "no float32 tensor");
    else if (r->step == TD_AMP_STEP_NONE)
        td_text_add(out, r->class == TD_AMP_NONE ? "in no list" : "not between ops that are half");
    else
        td_text_add(out, "%s", td_amp_step_name(r->step));
    if (r->because && r->because != r->node)
        td_text_add(out, ": %s (%s)", td_node_label(r->because), r->because->op->name);
}

static void add_casts(const td_amp_row *r, const char *half, td_text *out)
{
    if (r->casts_to_half)
        td_text_add(out, " [cast to %s]", half);
    if (r->casts_to_wide)
        td_text_add(out, " [cast to fp32]");
}

static void row_text(const td_amp_row *r, const char *half, td_text *out)
{
    td_text_add(out, "%-28s %-26s %-9s %-5s ", td_node_label(r->node), r->node->op->name,
                td_amp_class_name(r->class), r->is_half ? half : "fp32");
    add_reason(r, out);
    add_casts(r, half, out);
    td_text_add(out, "\n");
}

static void row_json(const td_amp_row *r, const char *half, td_text *out)
{
    td_text why = { 0 };
    char colour[2] = { r->colour, '\0' };
    add_reason(r, &why);
    td_json_add_text(out, "name", td_node_label(r->node));
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
}

/* bytes of results that take half the room */
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

static int count_half(const td_amp_explanation *e)
{
    int n = 0;
    for (int i = 0; i < e->n_rows; i++)
        n += e->rows[i].is_half;
    return n;
}

static void show_json(const td_amp_explanation *e, const char *half, td_text *out)
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
    td_json_add(out, "n_half", count_half(e));
    td_json_add(out, "n_converted", e->n_converted);
    td_json_add(out, "n_casts", e->n_casts);
    td_json_add(out, "n_casts_to_half", e->n_casts_to_half);
    td_json_add(out, "saved_bytes", (double)saved_bytes(e));
    td_text_add(out, "}\n");
}

static void show_text(const td_amp_explanation *e, const char *half, td_text *out)
{
    int wide = 0, narrow = 0;
    td_text_add(out, "%-28s %-26s %-9s %-5s why\n", "layer", "op", "list", "type");
    for (int i = 0; i < e->n_rows; i++) {
        narrow += e->rows[i].casts_to_half;
        wide += e->rows[i].casts_to_wide;
        if (!e->rows[i].node->op->is_leaf || e->rows[i].casts_to_half)
            row_text(&e->rows[i], half, out);
    }
    td_text_add(out, "\n%s\n", e->message);
    td_text_add(out,
                "%d of %d nodes in %s; %d casts to %s, %d to fp32; results take %.1f MB less\n",
                count_half(e), e->n_rows, half, narrow, half, wide, (double)saved_bytes(e) / 1e6);
}

static td_status write_log(const td_graph *g, const td_amp_opts *amp, const td_target *target)
{
    td_graph *after;
    td_amp_opts silent = *amp;
    if (!amp->log_path)
        return TD_OK;
    silent.is_silent = true;
    TD_TRY(td_pass_run(pass_named("amp"), g, target, &silent, &after));
    td_status st = td_amp_write_log(g, after, amp);
    td_graph_free(after);
    return st;
}

static td_status explain(const td_inspection *q, const td_amp_opts *amp, const td_target *target,
                         td_text *out)
{
    td_graph *g;
    td_amp_explanation e;
    TD_TRY(prepare(q, target, &g));
    td_status st = write_log(g, amp, target);
    if (st == TD_OK)
        st = td_amp_explain(g, amp, &e);
    if (st == TD_OK) {
        if (q->opts->json)
            show_json(&e, td_amp_precision_name(amp), out);
        else
            show_text(&e, td_amp_precision_name(amp), out);
        td_amp_explanation_release(&e);
    }
    td_graph_free(g);
    return st;
}

td_status td_inspect_amp(const td_inspection *q, td_text *out)
{
    td_amp_opts amp = q->opts->amp;
    td_device *dev;
    TD_TRY(td_device_open(q->opts->device, &dev));
    td_status st = td_amp_resolve(&amp, dev);
    if (st == TD_OK && td_amp_dtype(&amp) == TD_DT_F32)
        st = td_error(TD_EUSAGE, "inspect amp: the precision is fp32, nothing is rewritten; "
                                 "--precision bf16 or fp16");
    if (st == TD_OK && amp.level >= TD_AMP_LEVEL_AUTOCAST)
        st = td_error(TD_EUSAGE, "inspect amp explains the painting of TensorFlow's levels; "
                                 "inspect graph --training shows what autocast and O1 to O3 do");
    if (st == TD_OK)
        st = explain(q, &amp, &dev->target, out);
    td_device_close(dev);
    return st;
}
