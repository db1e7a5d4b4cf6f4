/*
 * problem.c -- times every kernel of a problem line, gradients included
 *
 * The line's graph is compiled like any other; after one run, each node is run separately.
 * Reorders of inputs and outputs are excluded: inside a network, neighboring nodes have the same
 * layout.
 */
#include "benchmark/problem.h"

#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/signals.h"
#include "ops/problem_line.h"
#include "pass/amp.h"
#include "tandem/program.h"

#define LINES_MAX_BYTES ((size_t)4 << 20)

typedef struct {
    const td_benchmark_opts *o;
    td_device *dev;
    td_text *out;
    int n_results;
} session;

/* Bind ones to every input, 0 to labels; the times do not depend on values. */
static td_status bind_inputs(td_program *p, const td_graph *g, td_arena *a)
{
    for (int i = 0; i < g->n_values; i++) {
        const td_value *v = g->values[i];
        if (!td_value_is_input(v))
            continue;
        int64_t n = td_type_count(&v->type);
        float *data = td_arena_alloc(a, (size_t)n, td_dtype_bytes(v->type.dtype));
        if (!data)
            return TD_ENOMEM;
        for (int64_t k = 0; v->type.dtype == TD_DT_F32 && k < n; k++)
            data[k] = 1;
        TD_TRY(td_program_bind(p, v->name, data));
    }
    return TD_OK;
}

static void add_result(session *s, const char *line, const td_node_report *r, double seconds)
{
    td_text_add(s->out, "%s{\"line\": \"", s->n_results++ ? ", " : "");
    td_text_add_json(s->out, line);
    td_text_add(s->out, "\", \"op\": \"%s\", \"kernel\": \"%s\", \"impl\": \"%s\", ", r->op,
                r->kernel, r->impl);
    td_text_add(s->out, "\"ms\": %.4f, \"gflops\": ", seconds * 1e3);
    td_text_add(s->out, r->macs ? "%.2f}" : "null}", 2e-9 * (double)r->macs / seconds);
}

static td_status time_line(session *s, const char *line)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_program *p = NULL;
    td_arena inputs = { 0 };
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 }; /* the line has its dtype */
    TD_OUT(td_problem_graph(line, 0, &g, NULL));
    TD_OUT(td_compile(g, s->dev,
                      &(td_compile_opts){ .amp = &float32, .skip = s->o->device.skip_passes }, &p));
    TD_OUT(td_program_init(p, 1));
    TD_OUT(bind_inputs(p, g, &inputs));
    TD_OUT(td_program_run(p));
    for (int i = 0; i < td_program_node_count(p); i++) {
        double best;
        td_node_report r = td_program_node(p, i);
        if (!*r.kernel || strcmp(r.op, "reorder") == 0 ||
            (s->o->filter && !td_text_glob(s->o->filter, r.op)))
            continue;
        TD_OUT(td_program_time(p, i, s->o->warmup + s->o->iters, &best));
        if (best > 0)
            add_result(s, line, &r, best);
    }
out:
    td_program_free(p);
    td_graph_free(g);
    td_arena_release(&inputs);
    return st;
}

static td_status time_lines(session *s, char *text)
{
    int number = 1;
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line += strspn(line, " \t\r");
        if (*line == '\0' || *line == '#')
            continue;
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "interrupted by a signal");
        TD_TRY_MSG(time_line(s, line), "%s:%d", s->o->lines, number);
    }
    return TD_OK;
}

td_status td_problems_benchmark(const td_benchmark_opts *opts, td_text *out)
{
    td_status st = TD_OK;
    char *text = NULL;
    size_t n;
    session s = { .o = opts, .out = out };
    if (!opts->lines)
        return td_error(TD_EUSAGE, "--mode op requires --lines FILE");
    TD_OUT(td_file_read(opts->lines, LINES_MAX_BYTES, &text, &n));
    TD_OUT(td_device_open(opts->device.name, &s.dev));
    td_device_winograd(s.dev, opts->device.winograd);
    td_text_add(out, "{\"mode\": \"op\", \"threads\": %d, \"results\": [", td_threads());
    TD_OUT(time_lines(&s, text));
    if (s.n_results == 0)
        TD_OUT(opts->filter ? td_error(TD_EUSAGE, "--filter: no op of '%s' matches '%s'",
                                       opts->lines, opts->filter)
                            : td_error(TD_EFORMAT,
                                       "'%s' has no problem line, wanted one such as "
                                       "'conv2d x=8x64x56x56 w=64x64x3x3 pad=1'",
                                       opts->lines));
    td_text_add(out, "]}");
    st = td_text_status(out);
out:
    td_device_close(s.dev);
    td_free(text);
    return st;
}
