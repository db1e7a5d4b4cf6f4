/*
 * amp_propagate.c -- type propagation: each step floods the type graph or sweeps it in order
 *
 *   allow --> infer --> clear --> allow       everything between two allow ops becomes half,
 *   deny  --> infer --> clear --> infer       unless deny reaches it on the same path
 *
 * A flood starts at vertices of one kind and enters neighbours that have all bits in `need` and
 * none in `avoid`.  A vertex is entered once, so each step is linear in the edges.
 *
 * Source: TensorFlow's auto_mixed_precision, releases 1.15, 2.15 and 2.21: same classes, steps and
 * order.  Omitted on purpose: a cast whose float32 result is an output is not retargeted; the
 * statistics of a batch norm never follow (they fail the type test); emulation does not depend on
 * the order of nodes; the rule of 1.15 for stacks and tensor arrays is missing.
 */
#include "amp/amp_propagate.h"

#include <ctype.h>

#include "amp/amp_propagate_parts.h"

/* --- type propagation ------------------------------------------------------------------------- */

static void mark_vertex(td_amp_propagation *p, int v, char letter, td_amp_step step, int source)
{
    p->r->colour[v] = letter;
    p->r->step[v] = step;
    p->r->source[v] = source;
}

static void allow(td_amp_propagation *p, int v, char letter, td_amp_step step, int source)
{
    if (p->bits[v] & BIT_ALLOWED)
        return;
    p->bits[v] |= BIT_ALLOWED;
    mark_vertex(p, v, letter, step, source);
}

static void deny(td_amp_propagation *p, int v, td_amp_step step, int source)
{
    if ((p->bits[v] & (BIT_DENIED | BIT_ALLOWED)) == BIT_DENIED)
        return;
    p->bits[v] = (p->bits[v] & ~(uint32_t)BIT_ALLOWED) | BIT_DENIED;
    mark_vertex(p, v, 'D', step, source);
}

static void revert(td_amp_propagation *p, int v, td_amp_step step, int source)
{
    if (!(p->bits[v] & BIT_ALLOWED))
        return;
    p->bits[v] &= ~(uint32_t)BIT_ALLOWED;
    mark_vertex(p, v, (char)tolower((unsigned char)p->r->colour[v]), step, source);
}

/* --- floods ----------------------------------------------------------------------------------- */

typedef struct {
    bool up, down;
    uint32_t need, avoid; /* bits required and excluded to enter a vertex */
    uint32_t set;         /* bits set on the root and all entered vertices; also avoided */
    char letter;          /* colour to set; 0: only the bits */
    td_amp_step step;
} flood;

static void apply_flood(td_amp_propagation *p, const flood *f, int v, int root)
{
    if (f->letter == 'D')
        deny(p, v, f->step, v == root ? -1 : root);
    else if (f->letter && v != root)
        allow(p, v, f->letter, f->step, root);
    p->bits[v] |= f->set;
}

static int enter(td_amp_propagation *p, const flood *f, int v, int root, int n_stack)
{
    if ((p->bits[v] & f->need) != f->need || (p->bits[v] & (f->avoid | f->set)))
        return n_stack;
    apply_flood(p, f, v, root);
    p->stack[n_stack] = v;
    return n_stack + 1;
}

static void flood_from(td_amp_propagation *p, const flood *f, int root)
{
    int n = 1;
    apply_flood(p, f, root, root);
    p->stack[0] = root;
    while (n > 0) {
        int v = p->stack[--n];
        if (f->up)
            for (int i = p->in.start[v]; i < p->in.start[v + 1]; i++)
                n = enter(p, f, p->edges[p->in.order[i]].from, root, n);
        if (f->down)
            for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++)
                n = enter(p, f, p->edges[p->out.order[i]].to, root, n);
    }
}

/* Floods from every vertex with the bits `have` and without `lack`. */
static void flood_all(td_amp_propagation *p, const flood *f, uint32_t have, uint32_t lack)
{
    for (int v = 0; v < p->g->n_vertices; v++)
        if ((p->bits[v] & have) == have && !(p->bits[v] & lack))
            flood_from(p, f, v);
}

/* --- allow ------------------------------------------------------------------------------------ */

static bool is_forced(const td_amp_propagation *p, int v)
{
    const uint32_t never = TD_AMP_IS_CONST | TD_AMP_IS_UNFORCED;
    return p->o->level == TD_AMP_LEVEL_UNSAFE_FORCE_ALL &&
           !(p->g->nodes[p->g->vertices[v].node].flags & never);
}

/* Before type checks, so integers are included.  True if any vertex was changed. */
static bool allow_ops(td_amp_propagation *p)
{
    bool any = false;
    for (int v = 0; v < p->g->n_vertices; v++)
        if ((p->bits[v] & BIT_ELIGIBLE) && ((p->bits[v] & BIT_ALLOW_OP) || is_forced(p, v))) {
            allow(p, v, 'A', TD_AMP_STEP_ALLOW, -1);
            any = true;
        }
    return any;
}

/* --- deny ------------------------------------------------------------------------------------- */

/* Deny spreads downstream, but not into trailing clear ops that no infer or deny op follows. */
static void spread_denial(td_amp_propagation *p)
{
    const flood deny_passes = { .up = true, .need = BIT_CLEAR_OP, .set = BIT_DENY_PASSES };
    flood_all(p, &deny_passes, BIT_DENY_OP, 0);
    flood_all(p, &deny_passes, BIT_INFER_OP, 0);
    const flood denied = { .down = true,
                           .need = BIT_DENY_PASSES,
                           .set = BIT_DENIED,
                           .letter = 'D',
                           .step = TD_AMP_STEP_DENY };
    flood_all(p, &denied, BIT_DENY_OP, BIT_DENIED);
}

/* --- fill, follow, clear ---------------------------------------------------------------------- */

static void fill_between(td_amp_propagation *p)
{
    const flood downstream = { .down = true,
                               .need = BIT_SOFT_OP | BIT_CAN_CHANGE,
                               .avoid = BIT_DENIED,
                               .set = BIT_DOWNSTREAM };
    flood_all(p, &downstream, BIT_ALLOW_OP | BIT_ELIGIBLE, 0);
    const flood between = { .up = true,
                            .need = BIT_DOWNSTREAM,
                            .set = BIT_BETWEEN,
                            .letter = 'B',
                            .step = TD_AMP_STEP_FILL };
    flood_all(p, &between, BIT_ALLOW_OP | BIT_ELIGIBLE, BIT_BETWEEN);
}

/* The first half input, or -1; also -1 if an input is denied. */
static int half_input(const td_amp_propagation *p, int v)
{
    int found = -1;
    for (int i = p->in.start[v]; i < p->in.start[v + 1]; i++) {
        int from = p->edges[p->in.order[i]].from;
        if (p->bits[from] & BIT_DENIED)
            return -1;
        if (found < 0 && (p->bits[from] & BIT_ALLOWED))
            found = from;
    }
    return found;
}

/* One sweep in graph order: a later vertex can follow one changed in the same sweep. */
static void follow(td_amp_propagation *p)
{
    const uint32_t need = BIT_INFER_OP | BIT_ELIGIBLE | BIT_F32 | BIT_TYPE; /* no kernel test */
    const uint32_t avoid = BIT_DENIED | BIT_ALLOWED;
    bool is_bf16 = p->o->mode == TD_AMP_MODE_BF16;
    if (p->o->rule == TD_AMP_RULE_CLASSIC || (p->o->rule == TD_AMP_RULE_2_15 && !is_bf16))
        return;
    for (int v = 0; v < p->g->n_vertices; v++) {
        if ((p->bits[v] & need) != need || (p->bits[v] & avoid))
            continue;
        int source = half_input(p, v);
        if (source >= 0)
            allow(p, v, 'F', TD_AMP_STEP_FOLLOW, source);
    }
}

/* Ops that only move data take their neighbours' type; a variable is cast after its read. */
static void spread_clear(td_amp_propagation *p)
{
    const flood clear = { .up = true,
                          .down = true,
                          .need = BIT_CLEAR_OP | BIT_CAN_CHANGE,
                          .avoid = BIT_DENIED | BIT_READ,
                          .set = BIT_ALLOWED,
                          .letter = 'C',
                          .step = TD_AMP_STEP_CLEAR };
    flood_all(p, &clear, BIT_ELIGIBLE | BIT_ALLOWED, 0);
}

/* --- force down ------------------------------------------------------------------------------- */

static bool has_quantised(const td_amp_propagation *p, int node)
{
    const td_amp_node *n = &p->g->nodes[node];
    for (int v = n->first_vertex; v < n->first_vertex + n->n_vertices; v++)
        if (p->g->vertices[v].type == TD_AMP_TYPE_QUANTISED)
            return true;
    return false;
}

static void force_down(td_amp_propagation *p)
{
    if (p->o->rule == TD_AMP_RULE_CLASSIC)
        return;
    for (int i = 0; i < p->g->n_nodes; i++) {
        const td_amp_node *n = &p->g->nodes[i];
        bool is_quantised = n->class == TD_AMP_ALLOW && has_quantised(p, i);
        for (int v = n->first_vertex; v < n->first_vertex + n->n_vertices; v++)
            if (n->class == TD_AMP_ALLOW && (is_quantised || !(p->bits[v] & BIT_TYPE)))
                revert(p, v, TD_AMP_STEP_FORCE_DOWN, -1);
    }
}

/* --- lists and loops -------------------------------------------------------------------------- */

static int first_with(const td_amp_propagation *p, const td_amp_cluster *c, uint32_t bit)
{
    for (int i = c->first; i < c->first + c->n; i++)
        if (p->bits[p->members[i]] & bit)
            return p->members[i];
    return -1;
}

static void match_lists(td_amp_propagation *p)
{
    for (int k = 0; k < p->n_clusters; k++) {
        const td_amp_cluster *c = &p->clusters[k];
        int denied = first_with(p, c, BIT_DENIED), allowed = first_with(p, c, BIT_ALLOWED);
        for (int i = c->first; i < c->first + c->n; i++)
            if (denied >= 0)
                deny(p, p->members[i], TD_AMP_STEP_LIST, denied);
            else if (allowed >= 0)
                allow(p, p->members[i], 'L', TD_AMP_STEP_LIST, allowed);
    }
}

static void deny_unsafe_lists(td_amp_propagation *p)
{
    for (int k = 0; k < p->n_clusters; k++)
        for (int i = p->clusters[k].first; i < p->clusters[k].first + p->clusters[k].n; i++)
            if (p->clusters[k].is_unsafe)
                deny(p, p->members[i], TD_AMP_STEP_LIST, -1);
}

/* Makes a next-iteration vertex and the merges it feeds all half or all float32. */
static void match_loop(td_amp_propagation *p, int v)
{
    int not_half = -1, half = -1;
    for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++) {
        int to = p->edges[p->out.order[i]].to;
        if (!(p->g->nodes[p->g->vertices[to].node].flags & TD_AMP_IS_MERGE))
            continue;
        if (p->bits[to] & BIT_ALLOWED)
            half = half < 0 ? to : half;
        else
            not_half = not_half < 0 ? to : not_half;
    }
    if (not_half >= 0) {
        for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++) {
            int to = p->edges[p->out.order[i]].to;
            if (p->g->nodes[p->g->vertices[to].node].flags & TD_AMP_IS_MERGE)
                revert(p, to, TD_AMP_STEP_LOOP, not_half);
        }
        revert(p, v, TD_AMP_STEP_LOOP, not_half);
    } else if (half >= 0)
        allow(p, v, 'L', TD_AMP_STEP_LOOP, half);
}

static void match_loops(td_amp_propagation *p)
{
    for (int v = 0; v < p->g->n_vertices; v++)
        if (p->g->nodes[p->g->vertices[v].node].flags & TD_AMP_IS_NEXT_ITERATION)
            match_loop(p, v);
}

/* --- existing casts --------------------------------------------------------------------------- */

/* The first user of a vertex if all its users are half; otherwise, or without users, -1. */
static int half_user(const td_amp_propagation *p, int v)
{
    for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++)
        if (!(p->bits[p->edges[p->out.order[i]].to] & BIT_ALLOWED))
            return -1;
    return p->out.start[v] < p->out.start[v + 1] ? p->edges[p->out.order[p->out.start[v]]].to : -1;
}

static void retarget_casts(td_amp_propagation *p)
{
    if (p->o->is_emulated)
        return; /* types do not change under emulation */
    const uint32_t need = BIT_F32 | BIT_ELIGIBLE;
    for (int v = 0; v < p->g->n_vertices; v++) {
        if (!(p->g->nodes[p->g->vertices[v].node].flags & TD_AMP_IS_CAST) ||
            (p->bits[v] & need) != need)
            continue;
        int user = half_user(p, v);
        if (user >= 0)
            allow(p, v, 'K', TD_AMP_STEP_RETARGET, user);
    }
}

/* --- entry point ------------------------------------------------------------------------------ */

static td_status give_up(td_amp_propagation *p, const char *code, const char *why)
{
    p->r->is_failed = true;
    return td_amp_log(p, "%s graph optimizer FAILED: %s: %s", td_amp_pass_name(p->o->mode), code,
                      why);
}

static td_status refuse_options(td_amp_propagation *p)
{
    bool is_classic = p->o->rule == TD_AMP_RULE_CLASSIC;
    const char *code = is_classic ? "Invalid argument" : "INVALID_ARGUMENT";
    bool is_onednn = p->o->mode == TD_AMP_MODE_BF16 || p->o->mode == TD_AMP_MODE_FP16_CPU;
    if (p->o->level == TD_AMP_LEVEL_UNSAFE_FORCE_ALL && is_onednn)
        return give_up(p, code,
                       "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL cannot be set to "
                       "UNSAFE_FORCE_ALL when oneDNN is used");
    for (int i = 0; i < p->o->n_conflicts; i++)
        TD_TRY(td_amp_log(p, "Op present in multiple lists: %s", p->o->conflict[i]));
    return p->o->n_conflicts ? give_up(p, code, "Op lists have conflicting entries") : TD_OK;
}

static void run_steps(td_amp_propagation *p)
{
    if (p->o->level != TD_AMP_LEVEL_UNSAFE_FORCE_ALL)
        spread_denial(p);
    match_lists(p);
    fill_between(p);
    follow(p);
    spread_clear(p);
    force_down(p);
    match_lists(p);
    match_loops(p);
    retarget_casts(p);
}

/* Determines the vertices that change; a half vertex with a fixed type fails the rewrite. */
static td_status resolve(td_amp_propagation *p)
{
    bool is_failed = false;
    for (int v = 0; v < p->g->n_vertices; v++) {
        p->r->is_half[v] = (p->bits[v] & BIT_ALLOWED) && (p->bits[v] & BIT_F32);
        is_failed = is_failed || (p->r->is_half[v] && p->g->vertices[v].is_fixed);
    }
    if (!is_failed || p->o->is_emulated)
        return TD_OK;
    for (int v = 0; v < p->g->n_vertices; v++)
        p->r->is_half[v] = false;
    bool is_classic = p->o->rule == TD_AMP_RULE_CLASSIC;
    return give_up(p, is_classic ? "Internal" : "INTERNAL", "Failed to set type attribute");
}

static td_status propagate_types(td_amp_propagation *p)
{
    TD_TRY(td_amp_propagation_begin(p));
    TD_TRY(td_amp_log(p, "Running %s graph optimizer", td_amp_pass_name(p->o->mode)));
    TD_TRY(refuse_options(p));
    if (p->r->is_failed)
        return TD_OK;
    TD_TRY(td_amp_find_clusters(p));
    deny_unsafe_lists(p);
    if (!allow_ops(p)) {
        const char *list = p->o->rule == TD_AMP_RULE_CLASSIC ? "whitelist" : "allowlist";
        return td_amp_log(p, "No %s ops found, nothing to do", list);
    }
    run_steps(p);
    TD_TRY(resolve(p));
    return p->r->is_failed ? TD_OK : td_amp_place_casts(p);
}

td_status td_amp_propagate(const td_amp_graph *g, const td_amp_propagate_opts *opts,
                           td_amp_propagate_result *r)
{
    *r = (td_amp_propagate_result){ 0 };
    TD_TRY(td_amp_graph_check(g));
    td_amp_propagation p = { .g = g, .o = opts, .r = r };
    td_status st = propagate_types(&p);
    for (int v = 0; v < g->n_vertices && st == TD_OK; v++)
        if (g->vertices[v].type != TD_AMP_TYPE_F32)
            r->colour[v] = '-';
    td_arena_release(&p.scratch);
    if (st != TD_OK)
        td_amp_propagate_release(r);
    return st;
}

void td_amp_propagate_release(td_amp_propagate_result *r)
{
    td_arena_release(&r->memory);
    *r = (td_amp_propagate_result){ 0 };
}

const char *td_amp_step_name(td_amp_step step)
{
    static const char *const names[] = {
        [TD_AMP_STEP_NONE] = "none",         [TD_AMP_STEP_ALLOW] = "allow",
        [TD_AMP_STEP_DENY] = "deny",         [TD_AMP_STEP_FILL] = "fill",
        [TD_AMP_STEP_FOLLOW] = "follow",     [TD_AMP_STEP_CLEAR] = "clear",
        [TD_AMP_STEP_LIST] = "list",         [TD_AMP_STEP_LOOP] = "loop",
        [TD_AMP_STEP_RETARGET] = "retarget", [TD_AMP_STEP_FORCE_DOWN] = "force-down",
    };
    return names[step];
}
