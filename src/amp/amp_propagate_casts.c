/*
 * amp_propagate_casts.c -- places casts, one per port and direction; names, counts, messages
 *
 *   conv --half--> [cast to f32] --+--> loss      at most one cast follows a float32 port, shared
 *     |                            +--> sum       by all consumers of the other type
 *     +--half--> relu
 *
 * With emulation, node types stay float32: a cast to half rounds each half port, and every reader
 * of it gets a cast back to float32: one shared by the float32 consumers, and one for each input
 * port of a half consumer:
 *
 *   conv --f32--> [cast to half] --+--> [to f32] --> loss, sum
 *                                  +--> [to f32] --> relu
 */
#include "amp/amp_propagate_parts.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/map.h"

/* --- messages --------------------------------------------------------------------------------- */

const char *td_amp_pass_name(td_amp_mode mode)
{
    static const char *const names[] = {
        [TD_AMP_MODE_FP16] = "auto_mixed_precision",
        [TD_AMP_MODE_BF16] = "auto_mixed_precision_onednn_bfloat16",
        [TD_AMP_MODE_CPU] = "auto_mixed_precision_cpu",
        [TD_AMP_MODE_FP16_CPU] = "auto_mixed_precision_onednn_float16",
    };
    return names[mode];
}

static char *format(td_arena *a, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = n < 0 ? NULL : td_arena_alloc(a, (size_t)n + 1, 1);
    if (text)
        (void)vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

static char *format_in(td_arena *a, const char *fmt, ...) TD_PRINTF(2, 3);

static char *format_in(td_arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = format(a, fmt, args);
    va_end(args);
    return text;
}

td_status td_amp_log(td_amp_propagation *p, const char *fmt, ...)
{
    td_amp_propagate_result *r = p->r;
    if (!r->messages) /* start, one per conflict, and the reason for the end */
        r->messages =
            td_arena_alloc(&r->memory, (size_t)p->o->n_conflicts + 2, sizeof *r->messages);
    if (!r->messages)
        return TD_ENOMEM;
    va_list args;
    va_start(args, fmt);
    char *text = format(&r->memory, fmt, args);
    va_end(args);
    if (!text)
        return TD_ENOMEM;
    r->messages[r->n_messages++] = text;
    return TD_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* State of cast placement: the used names. */
typedef struct {
    td_amp_propagation *p;
    td_map names;
} placer;

static td_status take_names(placer *w)
{
    static char present;
    for (int i = 0; i < w->p->g->n_nodes; i++)
        TD_TRY(td_map_set(&w->names, w->p->g->nodes[i].name, &present));
    return TD_OK;
}

static const char *label(const placer *w, bool to_half)
{
    return !to_half ? "Fp32" : w->p->o->mode == TD_AMP_MODE_BF16 ? "Bf16" : "Fp16";
}

/* The first unused name, numbered from *k on; *k becomes the next number.  NULL: no memory. */
static char *name_cast(placer *w, const char *node, int port, bool to_half, int *k)
{
    td_arena *a = &w->p->r->memory;
    if (w->p->o->rule == TD_AMP_RULE_CLASSIC)
        return format_in(a, "%s-%d-CastTo%s-AutoMixedPrecision", node, port, label(w, to_half));
    for (;;) {
        char *name = format_in(a, "%s-%d-CastTo%s-%d-AutoMixedPrecision", node, port,
                               label(w, to_half), (*k)++);
        if (!name || !td_map_has(&w->names, name))
            return name && td_map_set(&w->names, name, name) == TD_OK ? name : NULL;
    }
}

/* --- casts ------------------------------------------------------------------------------------ */

/* The consumers of one float32 port: edges order[first] .. order[end - 1]. */
typedef struct {
    int vertex, port;
    int first, end;
} port_uses;

static const td_amp_edge *edge_at(const placer *w, int i)
{
    return &w->p->edges[w->p->out.order[i]];
}

static bool is_half_use(const placer *w, int i)
{
    return w->p->r->is_half[edge_at(w, i)->to];
}

static int count_uses(const placer *w, const port_uses *u, bool half)
{
    int n = 0;
    for (int i = u->first; i < u->end; i++)
        n += is_half_use(w, i) == half;
    return n;
}

static td_amp_end port_end(const placer *w, int vertex, int port)
{
    return (td_amp_end){ .node = w->p->g->vertices[vertex].node, .port = port, .cast = -1 };
}

static bool is_cached(const placer *w, int vertex)
{
    int node = w->p->g->vertices[vertex].node;
    return (w->p->g->nodes[node].flags &
            (TD_AMP_IS_CONST | TD_AMP_IS_VARIABLE | TD_AMP_IS_REF_VARIABLE)) ||
           td_amp_reads_variable(w->p, node);
}

/* Adds a cast with space for n_to consumers, but without consumers; NULL: no memory. */
static td_amp_cast *add_cast(placer *w, const port_uses *u, bool to_half, int n_to)
{
    td_amp_propagate_result *r = w->p->r;
    td_amp_cast *c = &r->casts[r->n_casts];
    td_amp_end *to = td_arena_alloc(&r->memory, (size_t)n_to, sizeof *to);
    if (!to)
        return NULL;
    *c = (td_amp_cast){ .from = port_end(w, u->vertex, u->port),
                        .vertex = u->vertex,
                        .is_to_half = to_half,
                        .is_counted = to_half && !is_cached(w, u->vertex),
                        .to = to };
    r->n_casts_counted += c->is_counted;
    r->n_casts++;
    return c;
}

static void add_uses(const placer *w, const port_uses *u, bool half, td_amp_cast *c)
{
    for (int i = u->first; i < u->end; i++)
        if (is_half_use(w, i) == half)
            c->to[c->n_to++] = port_end(w, edge_at(w, i)->to, edge_at(w, i)->to_port);
}

static const char *node_name(const placer *w, int vertex)
{
    return w->p->g->nodes[w->p->g->vertices[vertex].node].name;
}

/* Adds the one cast of a port, for consumers of the other type. */
static td_status cast_port(placer *w, const port_uses *u)
{
    bool is_half = w->p->r->is_half[u->vertex];
    int n = count_uses(w, u, !is_half), k = 0;
    if (!n)
        return TD_OK;
    td_amp_cast *c = add_cast(w, u, !is_half, n);
    if (!c)
        return TD_ENOMEM;
    c->name = name_cast(w, node_name(w, u->vertex), u->port, !is_half, &k);
    add_uses(w, u, !is_half, c);
    return c->name ? TD_OK : TD_ENOMEM;
}

/* Adds a cast to float32 after cast `rounded`, for n consumers that the caller adds. */
static td_amp_cast *widen(placer *w, const port_uses *u, int rounded, int n, int *k)
{
    td_amp_cast *c = add_cast(w, u, false, n);
    if (!c)
        return NULL;
    td_amp_cast *from = &w->p->r->casts[rounded];
    c->from = (td_amp_end){ .node = -1, .port = 0, .cast = rounded };
    from->to[from->n_to++] = (td_amp_end){ .node = -1, .port = 0, .cast = w->p->r->n_casts - 1 };
    c->name = name_cast(w, from->name, 0, false, k);
    return c->name ? c : NULL;
}

static td_status emulate_port(placer *w, const port_uses *u)
{
    bool is_half = w->p->r->is_half[u->vertex];
    int n_half = count_uses(w, u, true), n_wide = u->end - u->first - n_half, k = 0;
    if (!is_half && !n_half)
        return TD_OK;
    int rounded = w->p->r->n_casts;
    td_amp_cast *c = add_cast(w, u, true, n_half + 1);
    if (!c)
        return TD_ENOMEM;
    c->name = name_cast(w, node_name(w, u->vertex), u->port, true, &k);
    if (!c->name)
        return TD_ENOMEM;

    k = 0;
    if (is_half && n_wide) {
        td_amp_cast *wide = widen(w, u, rounded, n_wide, &k);
        if (!wide)
            return TD_ENOMEM;
        add_uses(w, u, false, wide);
    }
    for (int i = u->first; i < u->end; i++) {
        if (!is_half_use(w, i))
            continue;
        td_amp_cast *wide = widen(w, u, rounded, 1, &k);
        if (!wide)
            return TD_ENOMEM;
        wide->to[wide->n_to++] = port_end(w, edge_at(w, i)->to, edge_at(w, i)->to_port);
    }
    return TD_OK;
}

/* Adds the casts of all ports of a vertex; temporary edges, whose port is -1, come first and are
   skipped. */
static td_status cast_vertex(placer *w, int v)
{
    const td_amp_sorted *out = &w->p->out;
    port_uses u = { .vertex = v };
    for (u.first = out->start[v]; u.first < out->start[v + 1]; u.first = u.end) {
        u.port = edge_at(w, u.first)->from_port;
        u.end = u.first + 1;
        while (u.end < out->start[v + 1] && edge_at(w, u.end)->from_port == u.port)
            u.end++;
        if (u.port >= 0)
            TD_TRY(w->p->o->is_emulated ? emulate_port(w, &u) : cast_port(w, &u));
    }
    return TD_OK;
}

static td_status cast_all(placer *w)
{
    td_amp_propagation *p = w->p;
    size_t most = 2 * (size_t)p->n_edges + 1; /* at most two casts per edge, with emulation */
    p->r->casts = td_arena_alloc(&p->r->memory, most, sizeof *p->r->casts);
    if (!p->r->casts)
        return TD_ENOMEM;
    TD_TRY(take_names(w));
    for (int v = 0; v < p->g->n_vertices; v++) {
        if (!(p->bits[v] & BIT_F32))
            continue;
        TD_TRY(cast_vertex(w, v));
        if (p->r->is_half[v] && !p->o->is_emulated)
            p->r->n_converted++;
    }
    return TD_OK;
}

td_status td_amp_place_casts(td_amp_propagation *p)
{
    placer w = { .p = p };
    td_status st = cast_all(&w);
    td_map_release(&w.names);
    TD_TRY(st);
    const char *half = p->o->mode == TD_AMP_MODE_BF16 ? "bfloat16" : "float16";
    return td_amp_log(p,
                      "Converted %d/%d nodes to %s precision using %d cast(s) to %s (excluding "
                      "Const and Variable casts)",
                      p->r->n_converted, p->g->n_nodes, half, p->r->n_casts_counted, half);
}
