/*
 * inference_program.c -- the inference graph of a batch, or of a micro-batch of it
 */
#include "optim/inference_program.h"

#include "base/log.h"
#include "base/machine.h"
#include "optim/training_graph.h"
#include "runtime/device.h"
#include "runtime/micro_batch.h"

/* *g, of the whole batch, becomes that of a micro-batch, if this is faster and the network can have
   another batch */
static void divide(const td_inference_opts *o, const td_device *dev, td_graph **g, int *rows)
{
    td_graph *smaller;
    *rows = o->batch;
    if (o->is_whole || !dev->memory->is_host || o->batch == 1)
        return;
    const int n = td_micro_batch(*g, o->batch, td_cache_bytes(), td_threads());
    if (n == o->batch)
        return;
    if (td_inference_graph(o->model, n, o->norm, &smaller) != TD_OK) {
        td_error_clear();
        return;
    }
    td_graph_free(*g);
    *g = smaller;
    *rows = n;
    td_log(TD_LOG_DEBUG, "inference", "a batch of %d is computed in micro-batches of %d", o->batch,
           n);
}

td_status td_inference_compile(const td_inference_opts *o, td_device *dev,
                               const td_compile_opts *opts, td_program **out)
{
    td_graph *g = NULL;
    td_compile_opts c = *opts;
    int rows;
    *out = NULL;
    TD_TRY(td_inference_graph(o->model, o->batch, o->norm, &g));
    divide(o, dev, &g, &rows);
    c.micro_batches = o->batch / rows;
    const td_status st = td_compile(g, dev, &c, out);
    td_graph_free(g);
    return st;
}
