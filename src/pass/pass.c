/*
 * pass.c -- the list of passes in order, and the driver
 *
 *     decompose composites, simpler ops           autocast  precision op by op, if requested
 *     grad      compute gradient(loss, w)         fold      batch norm into convolutions
 *     amp       precision by type propagation     tf32      round factors, if requested
 *     fuse      fuse neighbours into one op       norms     batch norms in convolutions
 *     gates     squeeze-excite layers in few ops  quantize  8-bit convolutions, if requested
 *     int8_ends first convolution, and its pool   linears   gelu, residual in linear layers
 *     attention its products in one op            winograd  3x3 convolutions in tiles
 *     unfold    one filter for several norms      inverted_residual  blocks computed by rows
 *     layout    choose memory layouts
 *     clean     remove duplicates and no-ops      copies    half weights written by the update
 *     order     move updates up, for memory       buckets   overlap sums over ranks
 *     multi_tensor  nodes for one call together
 *     recompute repeat cheap ops for backward
 */
#include "pass/pass.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pass/amp.h"

static const td_pass *const passes[] = {
    &td_pass_decompose, &td_pass_autocast,     &td_pass_grad,      &td_pass_fold,
    &td_pass_amp,       &td_pass_tf32,         &td_pass_fuse,      &td_pass_norms,
    &td_pass_gates,     &td_pass_quantize,     &td_pass_int8_ends, &td_pass_linears,
    &td_pass_attention, &td_pass_winograd,     &td_pass_unfold,    &td_pass_inverted_residual,
    &td_pass_layout,    &td_pass_clean,        &td_pass_copies,    &td_pass_order,
    &td_pass_buckets,   &td_pass_multi_tensor, &td_pass_recompute,
};

#define N_PASSES ((int)(sizeof passes / sizeof passes[0]))

const td_pass *td_pass_at(int i)
{
    return i >= 0 && i < N_PASSES ? passes[i] : NULL;
}

td_status td_pass_check_list(const char *list, const char *option, bool may_be_required)
{
    for (const char *s = list; s && *s;) {
        size_t len = strcspn(s, ",");
        const td_pass *found = NULL;
        for (int i = 0; i < N_PASSES; i++)
            if (strlen(passes[i]->name) == len && strncmp(passes[i]->name, s, len) == 0)
                found = passes[i];
        if (!found && !(may_be_required && len == 3 && strncmp(s, "all", 3) == 0))
            return td_error(
                TD_EUSAGE,
                "%s: '%.*s' is not a pass, wanted one of decompose, autocast, grad, fold, amp, "
                "tf32, fuse, norms, gates, quantize, int8_ends, linears, attention, winograd, "
                "unfold, inverted_residual, layout, clean, copies, order, buckets, multi_tensor, "
                "recompute",
                option, (int)len, s);
        if (found && found->is_required && !may_be_required)
            return td_error(TD_EUSAGE, "%s: '%s' cannot be skipped", option, found->name);
        s += len + (s[len] == ',');
    }
    return TD_OK;
}

/* --- dead nodes ------------------------------------------------------------------------------- */

/* marks what outputs and effects need, walking backwards; inputs always stay */
static void mark_live(const td_graph *g, bool *live)
{
    for (int i = 0; i < g->n_outputs; i++)
        live[g->outputs[i].value->producer->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (td_node_has_effect(n) || (n->n_out && td_value_is_input(n->out[0])))
            live[i] = true;
        for (int k = 0; live[i] && k < n->n_in; k++)
            live[n->in[k]->producer->id] = true;
    }
}

static void copy_live(td_rewriter *rw)
{
    const bool *live = rw->state;
    for (int i = 0; i < rw->old->n_nodes; i++)
        if (live[i])
            td_rw_copy(rw, rw->old->nodes[i]);
}

/* --- one pass --------------------------------------------------------------------------------- */

static void run_nodes(const td_pass *pass, td_rewriter *rw)
{
    td_value *in[TD_IN_MAX];
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        td_rw_operands(rw, rw->old->nodes[i], in);
        pass->node(rw, rw->old->nodes[i], in);
    }
}

static void copy_outputs(td_rewriter *rw)
{
    for (int i = 0; i < rw->old->n_outputs && td_build_ok(rw->b); i++)
        td_output(rw->b, rw->old->outputs[i].name, td_rw_get(rw, rw->old->outputs[i].value));
}

typedef void rewrite_fn(const td_pass *pass, td_rewriter *rw);

static void run_pass(const td_pass *pass, td_rewriter *rw)
{
    if (pass->run)
        pass->run(rw);
    else
        run_nodes(pass, rw);
}

static void run_sweep(const td_pass *pass, td_rewriter *rw)
{
    (void)pass;
    copy_live(rw);
}

/* build a new graph with `fn`; the caller sets rw->state */
static td_status rewrite(const td_pass *pass, rewrite_fn *fn, td_rewriter *rw, td_graph **out)
{
    *out = NULL;
    rw->b = td_build_begin();
    rw->map = td_alloc((size_t)rw->old->n_values + 1, sizeof *rw->map);
    td_status st = rw->b && rw->map ? TD_OK : TD_ENOMEM;
    if (st == TD_OK && fn == run_pass && pass->begin)
        st = pass->begin(rw);
    if (st == TD_OK) {
        fn(pass, rw);
        copy_outputs(rw);
        st = td_build_finish(rw->b, out);
        rw->b = NULL;
    }
    if (fn == run_pass && pass->end)
        pass->end(rw);
    td_build_abandon(rw->b);
    td_free(rw->map);
    rw->map = NULL;
    return st;
}

static td_status sweep(const td_graph *g, td_graph **out)
{
    bool *live = td_alloc((size_t)g->n_nodes + 1, sizeof *live);
    *out = NULL;
    if (!live)
        return TD_ENOMEM;
    mark_live(g, live);
    td_rewriter rw = { .old = g, .state = live };
    td_status st = rewrite(NULL, run_sweep, &rw, out);
    td_free(live);
    return st;
}

static td_status run_counted(const td_pass *pass, const td_graph *g, const td_target *target,
                             const td_amp_opts *amp, td_graph **out, int *n_changed)
{
    td_graph *raw = NULL;
    td_rewriter rw = { .old = g, .target = target, .amp = amp };
    td_status st = TD_OK;

    *out = NULL;
    TD_OUT(rewrite(pass, run_pass, &rw, &raw));
    TD_OUT(sweep(raw, out));
    TD_OUT(td_graph_verify(*out));
    *n_changed = rw.n_changed;
out:
    td_graph_free(raw);
    if (st == TD_OK)
        return TD_OK;
    td_graph_free(*out);
    *out = NULL;
    return td_error_context(st, "pass %s", pass->name);
}

td_status td_pass_run(const td_pass *pass, const td_graph *g, const td_target *target,
                      const td_amp_opts *amp, td_graph **out)
{
    int n_changed;
    return run_counted(pass, g, target, amp, out, &n_changed);
}

/* --- all passes ------------------------------------------------------------------------------- */

static td_status dump(const td_pass *pass, const td_graph *g, const td_pass_opts *opts)
{
    if (!td_text_in_list(opts->dump_after, pass->name) && !td_text_in_list(opts->dump_after, "all"))
        return TD_OK;
    char *text;
    TD_TRY(td_graph_print(g, &text));
    if (opts->dump)
        opts->dump(opts->dump_ctx, pass->name, text);
    else
        td_log(TD_LOG_INFO, "pass", "after %s:\n%s", pass->name, text);
    td_text_free(text);
    return TD_OK;
}

td_status td_pass_run_all(const td_graph *g, const td_target *target, const td_pass_opts *opts,
                          td_graph **out)
{
    td_status st = TD_OK;
    td_graph *now = NULL, *next = NULL;
    *out = NULL;
    TD_TRY(td_pass_check_list(opts->skip, "--skip-passes", false));
    TD_TRY(td_pass_check_list(opts->dump_after, "--dump-after", true));
    for (int i = 0; i < N_PASSES; i++) {
        int n_changed = 0;
        int64_t t0 = td_now_ns();
        if (td_text_in_list(opts->skip, passes[i]->name))
            continue;
        if (passes[i] == &td_pass_layout && opts->before_layout)
            TD_OUT(opts->before_layout(opts->before_layout_ctx, now ? now : g, opts->skip));
        TD_OUT(run_counted(passes[i], now ? now : g, target, opts->amp, &next, &n_changed));
        if (passes[i] == &td_pass_amp)
            TD_OUT(td_amp_write_log(now ? now : g, next, opts->amp));
        if (passes[i] == &td_pass_recompute && opts->before_recompute)
            *opts->before_recompute = now;
        else
            td_graph_free(now);
        now = next;
        next = NULL;
        td_log(TD_LOG_DEBUG, "pass", "%s: %d %s, %d nodes (%.1f ms)", passes[i]->name, n_changed,
               passes[i]->counts, now->n_nodes, (double)(td_now_ns() - t0) * 1e-6);
        TD_OUT(dump(passes[i], now, opts));
    }
    *out = now;
    return TD_OK;
out:
    td_graph_free(now);
    td_graph_free(next);
    return st;
}
