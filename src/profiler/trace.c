/*
 * trace.c -- keeps a ring of steps and writes them as trace events
 *
 *     row 1, steps     [ step 7                          ] [ step 8               ...
 *                       [conv1/conv2d][bn1/batch_norm_relu]  [conv1/conv2d] ...
 *     row 2, between                                      [wait]
 *
 * Source: "Trace Event Format" (Google, 2016): complete events, "X", with times in microseconds;
 * an event inside another of its row is drawn below it.
 */
#include "profiler/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "io/atomic.h"
#include "profiler/profile.h"
#include "runtime/program_view.h"

enum {
    STEPS = 20,     /* maximum number of steps kept ... */
    EVENTS = 20000, /* ... limited to this many kernels in total: about 10 MB */
    SPANS = 64,     /* other activities */
    ROW_STEPS = 1,
    ROW_BETWEEN = 2
};

typedef struct {
    const char *name;
    td_span span;
} other;

struct td_trace {
    char *path, *what;
    td_program *program;
    int64_t origin_ns;
    int *nodes; /* [n_nodes] nodes with kernels */
    int n_nodes;
    int room;               /* steps */
    td_trace_place *places; /* [room] */
    td_span *spans;         /* [room, n_nodes] */
    int64_t n_steps;        /* steps so far; step i is at i % room */
    other others[SPANS];
    int64_t n_others;
};

/* --- open ------------------------------------------------------------------------------------- */

static void release(td_trace *t)
{
    td_free(t->path);
    td_free(t->what);
    td_free(t->nodes);
    td_free(t->places);
    td_free(t->spans);
    td_free(t);
}

static td_status allocate(td_trace *t, const char *path, const char *what)
{
    const int n = td_program_node_count(t->program);
    t->path = td_copy_text(path);
    t->what = td_copy_text(what);
    t->nodes = td_alloc((size_t)n + 1, sizeof *t->nodes);
    if (!t->path || !t->what || !t->nodes)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        if (*td_program_node(t->program, i).kernel && td_program_node(t->program, i).n_together > 0)
            t->nodes[t->n_nodes++] = i;
    t->room = t->n_nodes > EVENTS / STEPS ? EVENTS / t->n_nodes : STEPS;
    t->room = t->room ? t->room : 1;
    t->places = td_alloc((size_t)t->room, sizeof *t->places);
    t->spans = td_alloc((size_t)t->room * (size_t)t->n_nodes + 1, sizeof *t->spans);
    return t->places && t->spans ? TD_OK : TD_ENOMEM;
}

td_status td_trace_open(const char *path, const char *what, td_program *p, td_trace **out)
{
    *out = NULL;
    if (!path)
        return TD_OK;
    TD_TRY(td_output_check(path));
    td_trace *t = TD_NEW(td_trace);
    if (!t)
        return TD_ENOMEM;
    t->program = p;
    const td_status st = allocate(t, path, what);
    if (st != TD_OK) {
        release(t);
        return st;
    }
    td_program_profile(p, true);
    t->origin_ns = td_now_ns();
    *out = t;
    return TD_OK;
}

int td_trace_room(const td_trace *t)
{
    return t->room;
}

/* --- recording -------------------------------------------------------------------------------- */

void td_trace_step(td_trace *t, const td_trace_place *at)
{
    if (!t)
        return;
    const int i = (int)(t->n_steps++ % t->room);
    td_span *spans = t->spans + (size_t)i * (size_t)t->n_nodes;
    t->places[i] = *at;
    for (int k = 0; k < t->n_nodes; k++)
        spans[k] = td_program_span(t->program, t->nodes[k]);
}

void td_trace_span(td_trace *t, const char *name, int64_t begin_ns)
{
    if (t)
        t->others[t->n_others++ % SPANS] = (other){ name, { begin_ns, td_now_ns() } };
}

/* --- writing ---------------------------------------------------------------------------------- */

static void begin_event(const td_trace *t, const char *name, const char *category, int row,
                        td_span s, td_text *out)
{
    td_text_add(out, ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %d", row);
    td_text_add(out, ", \"ts\": %.3f, \"dur\": %.3f", (double)(s.begin_ns - t->origin_ns) * 1e-3,
                (double)(s.end_ns - s.begin_ns) * 1e-3);
    td_json_add_text(out, "name", name);
    td_json_add_text(out, "cat", category);
    td_text_add(out, ", \"args\": {");
}

static void add_shapes(const td_node *n, td_text *out)
{
    td_text shapes = { 0 };
    for (int i = 0; i < n->n_in; i++) {
        td_text_add(&shapes, i ? ", " : "");
        td_type_print(&n->in[i]->type, &shapes);
    }
    for (int i = 0; i < n->n_out; i++) {
        td_text_add(&shapes, i ? ", " : n->n_in ? " -> " : "-> ");
        td_type_print(&n->out[i]->type, &shapes);
    }
    td_json_add_text(out, "shapes", td_text_get(&shapes));
    if (td_text_status(&shapes) != TD_OK)
        out->st = TD_ENOMEM;
    td_text_release(&shapes);
}

static void add_node(const td_trace *t, int node, td_span s, td_text *out)
{
    char layer[128];
    td_text name = { 0 };
    const td_node_report r = td_program_node(t->program, node);
    td_profile_launch(t->program, node, layer, sizeof layer);
    td_text_add(&name, "%s/%s", layer, r.op);
    begin_event(t, td_text_get(&name), r.op, ROW_STEPS, s, out);
    td_json_add_text(out, "op", r.op);
    td_json_add_text(out, "kernel", r.kernel);
    td_json_add_text(out, "impl", r.impl);
    add_shapes(td_program_view_of(t->program).graph->nodes[node], out);
    td_json_add(out, "macs", (double)r.macs);
    td_json_add(out, "bytes", (double)(r.bytes_read + r.bytes_written));
    if (r.macs && s.end_ns > s.begin_ns)
        td_json_add(out, "gflop_s", 2 * (double)r.macs / (double)(s.end_ns - s.begin_ns));
    td_text_add(out, "}}");
    if (td_text_status(&name) != TD_OK)
        out->st = TD_ENOMEM;
    td_text_release(&name);
}

static void add_wait(const td_trace *t, const td_trace_place *at, td_text *out)
{
    const td_span s = { at->begin_ns - at->wait_ns, at->begin_ns };
    begin_event(t, "wait for the batch", "input", ROW_BETWEEN, s, out);
    td_json_add(out, "step", (double)at->step);
    td_json_add(out, "workers_ms", at->decode_s * 1e3);
    td_text_add(out, "}}");
}

static void add_step(const td_trace *t, int i, td_text *out)
{
    char name[48];
    const td_trace_place *at = &t->places[i];
    const td_span *spans = t->spans + (size_t)i * (size_t)t->n_nodes;
    if (at->wait_ns > 0)
        add_wait(t, at, out);
    snprintf(name, sizeof name, "step %lld", (long long)at->step);
    begin_event(t, at->step > 0 ? name : "warm-up", "step", ROW_STEPS,
                (td_span){ at->begin_ns, at->end_ns }, out);
    td_json_add(out, "step", (double)at->step);
    if (at->epoch >= 0) {
        td_json_add(out, "epoch", (double)at->epoch);
        td_json_add(out, "iteration", (double)at->iteration);
    }
    if (isfinite(at->loss))
        td_json_add(out, "loss", at->loss);
    td_text_add(out, "}}");
    for (int k = 0; k < t->n_nodes; k++) /* skip nodes that run once: their times are older */
        if (spans[k].begin_ns >= at->begin_ns && spans[k].end_ns <= at->end_ns &&
            spans[k].end_ns >= spans[k].begin_ns)
            add_node(t, t->nodes[k], spans[k], out);
}

/* adds other activities, unless they are older than the steps */
static void add_others(const td_trace *t, int64_t from_ns, td_text *out)
{
    for (int64_t i = t->n_others > SPANS ? t->n_others - SPANS : 0; i < t->n_others; i++) {
        const other *o = &t->others[i % SPANS];
        if (o->span.begin_ns < from_ns)
            continue;
        begin_event(t, o->name, "job", ROW_BETWEEN, o->span, out);
        td_text_add(out, "}}");
    }
}

static void name_row(int row, const char *name, td_text *out)
{
    td_text_add(out, ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %d, \"name\": \"thread_name\"", row);
    td_text_add(out, ", \"args\": {\"name\": \"%s\"}}", name);
}

static void add_head(const td_trace *t, int64_t first, td_text *out)
{
    td_text_add(out, "{\"displayTimeUnit\": \"ms\", \"otherData\": {");
    td_json_add_text(out, "run", t->what);
    td_json_add(out, "threads", td_threads());
    td_json_add(out, "steps", (double)t->n_steps);
    td_json_add(out, "steps_kept", (double)(t->n_steps - first));
    td_text_add(out, "}, \"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 1");
    td_text_add(out, ", \"name\": \"process_name\", \"args\": {");
    td_json_add_text(out, "name", t->what);
    td_text_add(out, "}}");
    name_row(ROW_STEPS, "steps", out);
    name_row(ROW_BETWEEN, "between steps", out);
}

static td_status flush(td_text *text, td_atomic *file)
{
    TD_TRY(td_text_status(text));
    TD_TRY(td_atomic_write(file, text->data, text->len));
    text->len = 0;
    return TD_OK;
}

static td_status write_file(const td_trace *t)
{
    td_status st = TD_OK;
    td_text text = { 0 };
    td_atomic *file;
    const int64_t first = t->n_steps > t->room ? t->n_steps - t->room : 0;
    TD_TRY(td_atomic_open(t->path, &file));
    add_head(t, first, &text);
    for (int64_t i = first; i < t->n_steps; i++) {
        add_step(t, (int)(i % t->room), &text);
        TD_OUT(flush(&text, file));
    }
    add_others(t, first ? t->places[first % t->room].begin_ns : 0, &text);
    td_text_add(&text, "\n]}\n");
    TD_OUT(flush(&text, file));
    st = td_atomic_commit(file);
out:
    td_text_release(&text);
    td_atomic_close(file);
    return st;
}

/* writes the trace after a failure, and returns that failure with its message */
static td_status write_after(const td_trace *t, td_status failed)
{
    char *message = td_copy_text(td_error_message());
    if (write_file(t) != TD_OK)
        td_log(TD_LOG_WARN, "trace", "%s", td_error_message());
    failed = td_error_set(failed, message ? message : td_status_text(failed));
    td_free(message);
    return failed;
}

td_status td_trace_close(td_trace *t, td_status st)
{
    if (!t)
        return st;
    td_program_profile(t->program, false);
    if (st == TD_OK)
        st = write_file(t);
    else if (t->n_steps)
        st = write_after(t, st);
    release(t);
    return st;
}
