/*
 * runtime/program_parts.h -- the struct of a program: for src/runtime only
 *
 *     compile.c ----> precision.c           which half type; `auto` measures programs
 *         |               |
 *         '-> program_new.c                 passes, slab, copies
 *                 |-> memory_fit.c          less memory, by recomputing results
 *                 '-----> program_plan.c    kernels and the plan
 *     program.c runs it, params.c fills it
 *         |-> program_copies.c              inputs and outputs
 *         '-> program_capture.c             launches that are replayed
 */
#ifndef TD_RUNTIME_PROGRAM_PARTS_H
#define TD_RUNTIME_PROGRAM_PARTS_H

#include "pass/plan.h"
#include "pass/recompute_limit.h"
#include "runtime/all_reduce.h"
#include "runtime/device.h"
#include "runtime/gpu_ranks.h"
#include "runtime/program_view.h"

typedef struct {
    td_prepared prepared;
    int n_args;
    int *value;  /* [n_in + n_out] index of the value of each argument */
    void **args; /* operands, results, scratch */
    const char *why;
    const char *text;
    td_span span; /* of the last profiled run */
    double seconds;
} td_call_slot;

/* a half copy of a parameter: filled when the parameter is set, then kept current by the update */
typedef struct {
    td_node node; /* assign copy, weight; in no graph */
    td_value *in[2];
    td_prepared prepared;
} td_copy_slot;

typedef struct td_segment td_segment; /* program_capture.c */

struct td_program {
    td_device *dev;
    td_graph *graph;
    td_arena arena;
    td_plan plan;
    td_recomputed recomputed; /* for memory_limit */
    int64_t unlimited_bytes;  /* the plan's size without the limit */
    td_call_slot *calls;      /* [graph nodes]; leaves and aliases have no kernel */
    bool *is_setup;
    const td_device_memory *memory;
    void **address; /* [graph values] in the device's memory */
    char *slab;
    size_t slab_bytes;
    /* if the device's memory is not the host's: */
    const void **bound; /* [graph values] inputs in host memory; copied in every run */
    const void **sent;  /* [graph values] those that td_program_send_ahead has copied */
    void **copied;      /* [graph values] outputs in host memory; NULL: not copied */
    char *inputs;       /* the addresses of inputs are in here */
    char *ahead;        /* those of the next run, or NULL */
    char *staged, *ring[TD_DEVICE_AHEAD]; /* the same in host memory */
    int slot;                             /* of the ring, that was used last */
    bool sends;                           /* in this run */
    char *outputs;                        /* host memory */
    size_t inputs_bytes, outputs_bytes;
    bool is_running;      /* started, not finished */
    td_segment *segments; /* NULL: not yet divided */
    int n_segments;
    int64_t n_plain_runs; /* that were not captured */
    bool is_refused;      /* a segment could not be captured */
    bool needs_setup, is_profiled;
    void (*observe)(void *ctx, const td_observation *o); /* NULL: not observed */
    void *observe_ctx;
    td_span span;     /* of the last run */
    int64_t begin_ns; /* of a profiled run, else 0 */
    int64_t n_runs;
    td_value **params; /* in order, without copies */
    int n_params;
    td_copy_slot *copies;
    int n_copies;
    td_reduction *reduction; /* NULL: no collective node */
    td_gpu_sums *sums;       /* instead of it, if the GPUs of all ranks add */
};

/** td_compile with a resolved precision: `o` and o->amp are not NULL. */
td_status td_program_new(const td_graph *g, td_device *dev, const td_compile_opts *o,
                         td_program **out) TD_CHECKED;

/** The error for a node that no kernel accepts, with the kernels' reasons. */
td_status td_program_no_kernel(const td_node *n, const td_text *why);

/** Choose kernels and make a plan for p->graph; p has none yet.  Call td_program_unplan even after
    a failure. */
td_status td_program_plan(td_program *p) TD_CHECKED;
void td_program_unplan(td_program *p);

/** The memory of inputs and outputs, if the device's memory is not the host's. */
td_status td_program_allocate_copies(td_program *p) TD_CHECKED;
void td_program_free_copies(td_program *p);

/** Then, in every run: queue the copies of inputs, TD_EARG if one was never bound; of outputs. */
td_status td_program_copy_inputs(td_program *p) TD_CHECKED;
td_status td_program_copy_outputs(td_program *p) TD_CHECKED;

/** Run nodes [first, end), but not those of the setup, by a launch of each kernel. */
td_status td_program_run_nodes(td_program *p, int first, int end) TD_CHECKED;

/** Are this run's kernels captured or replayed?  Then run them all. */
bool td_program_captures(const td_program *p);
td_status td_program_run_segments(td_program *p) TD_CHECKED;
void td_program_free_segments(td_program *p); /* before the memory */

/** The planned bytes of parameters and activations. */
int64_t td_program_planned_bytes(const td_program *p);

/**
 * Replan a program within o->memory_limit, from `full`, the graph before pass recompute (NULL: it
 * cannot be replanned).  TD_ENOMEM, with *o->least_bytes set: the limit cannot be met.
 */
td_status td_program_fit(td_program *p, const td_graph *full, const td_compile_opts *o) TD_CHECKED;

#endif
