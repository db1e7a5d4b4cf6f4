/*
 * freeze.c -- freezes the weights that match name patterns, and their norms
 */
#include "optim/freeze.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "ir/rewrite.h"
#include "ops/ops.h"

enum { PATTERN_BYTES = 256 };

/* --- patterns --------------------------------------------------------------------------------- */

/*
 * The next pattern of a list, without spaces around it, truncated to PATTERN_BYTES; false at the
 * end.
 */
static bool next_pattern(const char **list, char out[PATTERN_BYTES])
{
    const char *s = *list;
    if (!s)
        return false;
    size_t n = strcspn(s, ",");
    *list = s[n] ? s + n + 1 : NULL;
    for (; n && *s == ' '; n--)
        s++;
    while (n && s[n - 1] == ' ')
        n--;
    snprintf(out, PATTERN_BYTES, "%.*s", (int)(n < PATTERN_BYTES ? n : PATTERN_BYTES - 1), s);
    return true;
}

bool td_is_frozen(const char *patterns, const char *name)
{
    char pattern[PATTERN_BYTES];
    if (!patterns || !*patterns)
        return false;
    while (next_pattern(&patterns, pattern))
        if (td_text_glob(pattern, name))
            return true;
    return false;
}

/* --- counting --------------------------------------------------------------------------------- */

static bool is_weight(const td_node *n)
{
    return n->op == &td_op_param && ((const td_param_attr *)n->attr)->role == TD_ROLE_WEIGHT;
}

static bool matches_any(const td_graph *g, const char *pattern)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (is_weight(g->nodes[i]) && td_text_glob(pattern, g->nodes[i]->out[0]->name))
            return true;
    return false;
}

static void keep_nearer(const char *pattern, const char *name, int *best, char out[PATTERN_BYTES])
{
    const int distance = td_text_distance(pattern, name);
    if (distance < *best) {
        *best = distance;
        snprintf(out, PATTERN_BYTES, "%s", name);
    }
}

/* The nearest name of a weight, or pattern for a group of weights such as 'layer1.*'. */
static void find_nearest(const td_graph *g, const char *pattern, char out[PATTERN_BYTES])
{
    char inside[PATTERN_BYTES];
    int best = INT_MAX;
    snprintf(out, PATTERN_BYTES, "%.*s.*", PATTERN_BYTES - 3, pattern);
    if (matches_any(g, out))
        return;
    *out = '\0';
    for (int i = 0; i < g->n_nodes; i++) {
        const char *name = is_weight(g->nodes[i]) ? g->nodes[i]->out[0]->name : "";
        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            snprintf(inside, sizeof inside, "%.*s.*",
                     (int)(dot - name < PATTERN_BYTES - 3 ? dot - name : PATTERN_BYTES - 3), name);
            keep_nearer(pattern, inside, &best, out);
        }
        if (*name)
            keep_nearer(pattern, name, &best, out);
    }
}

static td_status check_patterns(const td_graph *g, const char *patterns)
{
    char pattern[PATTERN_BYTES], nearest[PATTERN_BYTES];
    while (next_pattern(&patterns, pattern)) {
        if (!*pattern)
            return td_error(TD_EUSAGE, "--freeze: an empty pattern in the list");
        if (matches_any(g, pattern))
            continue;
        find_nearest(g, pattern, nearest);
        return td_error(TD_EUSAGE, "--freeze: no weight matches '%s'; the nearest is '%s'", pattern,
                        nearest);
    }
    return TD_OK;
}

/* --- norms ------------------------------------------------------------------------------------ */

/*
 * The node that updates a norm's statistics; NULL unless the norm's scale and shift are frozen and
 * only this node uses its batch statistics.
 */
static const td_node *statistics_of(const td_graph *g, const char *patterns, const td_node *norm)
{
    const td_node *update = NULL;
    if (norm->op != &td_op_batch_norm || norm->out[1]->n_uses != 1 || norm->out[2]->n_uses != 1)
        return NULL;
    for (int i = 1; i <= 2; i++)
        if (!td_value_is_param(norm->in[i]) || !td_is_frozen(patterns, norm->in[i]->name))
            return NULL;
    for (int i = norm->id + 1; i < g->n_nodes && !update; i++)
        if (g->nodes[i]->op == &td_op_batch_norm_update && g->nodes[i]->in[2] == norm->out[1])
            update = g->nodes[i];
    return update && update->in[3] == norm->out[2] ? update : NULL;
}

/* Drop from the new graph: the update, the averages of its statistics, and their parameters. */
static void drop_updates(const td_graph *g, const td_node *update, bool *is_dropped)
{
    is_dropped[update->id] = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == &td_op_ema && (n->in[0] == update->in[0] || n->in[0] == update->in[1]))
            is_dropped[n->id] = is_dropped[n->in[1]->producer->id] = true;
    }
}

/* Copy a parameter unless it was copied; it may be declared after the norm. */
static td_value *param_of(td_rewriter *rw, const td_value *old)
{
    if (!rw->map[old->id])
        td_rw_copy(rw, old->producer);
    return td_rw_get(rw, old);
}

static void keep_statistics(td_rewriter *rw, const td_node *norm, const td_node *update)
{
    const td_norm_attr a = { .eps = ((const td_norm_attr *)norm->attr)->eps };
    td_value *x = td_rw_get(rw, norm->in[0]);
    td_value *y = td_emit(rw->b, &td_op_batch_norm_infer, &a, x, td_rw_get(rw, norm->in[1]),
                          td_rw_get(rw, norm->in[2]), param_of(rw, update->in[0]),
                          param_of(rw, update->in[1]));
    td_rw_set(rw, norm->out[0], y);
}

td_status td_freeze_norms(const td_graph *g, const char *patterns, td_graph **out)
{
    td_rewriter rw = { .old = g, .b = td_build_begin() };
    bool *is_dropped = td_alloc((size_t)g->n_nodes + 1, sizeof *is_dropped);
    rw.map = td_alloc((size_t)g->n_values + 1, sizeof *rw.map);
    if (!rw.map || !is_dropped)
        td_build_fail(rw.b, TD_ENOMEM);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++) {
        const td_node *n = g->nodes[i], *update = statistics_of(g, patterns, n);
        if (update)
            drop_updates(g, update, is_dropped);
    }
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++) {
        const td_node *n = g->nodes[i], *update = statistics_of(g, patterns, n);
        if (update)
            keep_statistics(&rw, n, update);
        else if (!is_dropped[i] && !(n->n_out && rw.map[n->out[0]->id]))
            td_rw_copy(&rw, n);
    }
    for (int i = 0; i < g->n_outputs && td_build_ok(rw.b); i++)
        td_output(rw.b, g->outputs[i].name, td_rw_get(&rw, g->outputs[i].value));
    td_free(rw.map);
    td_free(is_dropped);
    return td_build_end(rw.b, out);
}

/* Count the frozen norms of a graph made by td_freeze_norms. */
static int count_norms(const td_graph *g, const char *patterns)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *norm = g->nodes[i];
        n += norm->op == &td_op_batch_norm_infer && td_is_frozen(patterns, norm->in[1]->name) &&
             td_is_frozen(patterns, norm->in[2]->name);
    }
    return n;
}

td_status td_freeze_count(const td_graph *g, const char *patterns, bool norms,
                          td_freeze_counts *out)
{
    *out = (td_freeze_counts){ 0 };
    if (!patterns || !*patterns)
        return TD_OK;
    TD_TRY(check_patterns(g, patterns));
    for (int i = 0; i < g->n_nodes; i++) {
        if (!is_weight(g->nodes[i]))
            continue;
        const td_value *w = g->nodes[i]->out[0];
        const bool is_frozen = td_is_frozen(patterns, w->name);
        out->n += is_frozen;
        out->n_values += is_frozen ? td_type_count(&w->type) : 0;
        out->of++;
        out->of_values += td_type_count(&w->type);
    }
    if (out->n == out->of)
        return td_error(TD_EUSAGE,
                        "--freeze: '%s' freezes all %d weights, wanted at least one to train",
                        patterns, out->of);
    out->n_norms = norms ? count_norms(g, patterns) : 0;
    if (norms && !out->n_norms)
        return td_error(TD_EUSAGE, "--freeze-bn: '%s' freezes no batch norm's scale and shift",
                        patterns);
    return TD_OK;
}

/* --- resuming --------------------------------------------------------------------------------- */

static td_status read_frozen(const td_tensors *file, char **patterns, bool *norms)
{
    const char *config = td_tensors_meta(file, "tandem.config"), *text = NULL;
    td_json *doc;
    td_status st = TD_OK;
    *patterns = NULL;
    *norms = false;
    if (!config)
        return TD_OK;
    TD_TRY(td_json_parse(config, strlen(config), "tandem.config", &doc));
    const td_json *v = td_json_get(doc, "freeze"), *bn = td_json_get(doc, "freeze_bn");
    if (v && td_json_kind_of(v) != TD_JSON_NULL)
        TD_OUT(td_json_as_text(v, &text));
    if (bn)
        TD_OUT(td_json_bool(doc, "freeze_bn", norms));
    if (text && *text) {
        *patterns = td_copy_text(text);
        st = *patterns ? TD_OK : TD_ENOMEM;
    }
out:
    td_json_free(doc);
    return st;
}

td_status td_freeze_resume(const td_tensors *file, const char *path, const td_train_opts *o,
                           bool is_inside_step, char **then)
{
    bool norms;
    TD_TRY_MSG(read_frozen(file, then, &norms), "'%s'", path);
    const char *was = *then ? *then : "", *is = o->optimizer.freeze ? o->optimizer.freeze : "";
    if (strcmp(was, is) == 0 && norms == o->optimizer.freezes_bn)
        return TD_OK;
    if (is_inside_step)
        return td_error(TD_EARG,
                        "'%s' was saved inside an optimizer step with --freeze '%s'%s: it cannot "
                        "continue with '%s'%s",
                        path, was, norms ? " --freeze-bn" : "", is,
                        o->optimizer.freezes_bn ? " --freeze-bn" : "");
    td_log(TD_LOG_WARN, "train",
           "'%s' was trained with --freeze '%s'%s and continues with '%s'%s: newly trained weights "
           "start with zero momentum",
           path, was, norms ? " --freeze-bn" : "", is,
           o->optimizer.freezes_bn ? " --freeze-bn" : "");
    return TD_OK;
}
