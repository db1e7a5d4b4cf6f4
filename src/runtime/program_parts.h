/*
 * runtime/program_parts.h -- the struct of a program: for src/runtime only
 *
 *     compile.c ----> precision.c           which half type; `auto` measures programs
 *         |               |
 *         '-> program_new.c                 passes, slab, copies
 *                 |-> memory_fit.c          less memory, by recomputing results
 *                 |-> program_plan.c        kernels and the plan
 *                 '-> program_constants.c   parameters and setup results, shared by programs
 *     program.c runs it, params.c fills it
 *         |-> program_copies.c              inputs and outputs
 *         |-> micro_batch.c                 a batch computed a few rows at a time
 *         |-> program_lanes.c               several times a few rows at the same time
 *         |-> program_multi.c               nodes that run as one call
 *         '-> program_capture.c             launches that are replayed
 */
#ifndef TD_RUNTIME_PROGRAM_PARTS_H
#define TD_RUNTIME_PROGRAM_PARTS_H

#include "device/gpu_ranks.h"
#include "plan/plan.h"
#include "plan/recompute_limit.h"
#include "runtime/all_reduce.h"
#include "runtime/constants.h"
#include "runtime/device.h"
#include "runtime/program_view.h"

typedef struct {
    td_prepared prepared;
    int n_args;
    int *value;  /* [n_in + n_out] index of the value of each argument */
    void **args; /* operands, results, scratch */
    void *multi; /* of the first node of a call of several: for td_multi.run; else NULL */
    const char *why;
    const char *text;
    td_span span; /* of the last profiled run; of its last micro-batch */
    double run_s; /* of the last run, all micro-batches */
    double seconds;
} td_call_slot;

/* a half copy of a parameter: filled when the parameter is set, then kept current by the update */
typedef struct {
    td_node node; /* assign copy, weight; in no graph */
    td_value *in[2];
    td_prepared prepared;
} td_copy_slot;

typedef struct td_segment td_segment; /* program_capture.c */

/* program_lanes.c */
typedef struct {
    td_program *program; /* p itself, or another one of the same graph */
    td_status st;
    char message[512]; /* the error, unless st is TD_OK */
} td_lane;

struct td_program {
    td_device *dev;
    td_graph *graph;
    td_arena arena;
    td_plan plan;
    td_recomputed recomputed; /* for memory_limit */
    int64_t unlimited_bytes;  /* the plan's size without the limit */
    td_call_slot *calls;      /* [graph nodes]; leaves and aliases have no kernel */
    bool *is_setup;
    int *call_of; /* [graph nodes] the first node of the call that runs it */
    const td_device_memory *memory;
    void **address;              /* [graph values] in the device's memory */
    td_activations *activations; /* the slab; shared with other programs or not */
    bool shares_activations;
    td_constants *constants; /* parameters and setup results; shared or not */
    td_constant **constant;  /* [graph values] NULL for others */
    bool *claims;            /* [graph values] own memory of a constant that was not released */
    bool *is_read;           /* [plan buffers] by runs, not only by the setup */
    int64_t changes_at;      /* of the constants, when the setup ran; 0: never */
    int64_t shared_bytes, released_bytes;
    int micro_batches;
    int n_lanes;    /* 1: micro-batches run one after the other */
    td_lane *lanes; /* [n_lanes] threads with micro-batches of their own, or NULL */
    /* if the device's memory is not the host's, and with several micro-batches: */
    const void **bound; /* [graph values] inputs in host memory; copied in every run */
    void **copied;      /* [graph values] outputs in host memory; NULL: not copied */
    /* if the device's memory is not the host's: */
    const void **sent; /* [graph values] those that td_program_send_ahead has copied */
    char *inputs;      /* the addresses of inputs are in here */
    char *ahead;       /* those of the next run, or NULL */
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
    bool writes_params, is_profiled;
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

/**
 * Memory for parameters and setup results, that of `with` where it has equal ones (NULL: none), and
 * their addresses.  TD_EARG: `with` cannot share.
 */
td_status td_program_place_constants(td_program *p, td_program *with) TD_CHECKED;
void td_program_free_constants(td_program *p);

/** Were parameters set since this program's setup? */
bool td_program_needs_setup(const td_program *p);

/** Which nodes the setup has to run: is_needed [graph nodes] is zeroed before. */
void td_program_mark_needed(const td_program *p, bool *is_needed);
void td_program_note_computed(td_program *p, const td_node *n); /* it has run */

/** After the setup: release parameters that runs do not read. */
void td_program_release_sources(td_program *p);

/** The bytes of these parameters. */
int64_t td_program_releasable_bytes(const td_program *p);

/** Which nodes run as one call, when kernels are chosen; sets call_of. */
td_status td_program_find_multi(td_program *p) TD_CHECKED;
int td_program_call_end(const td_program *p, int i); /* the node after the call that runs node i */

/** Prepare calls of several nodes, when all addresses are known; run that of `first`. */
td_status td_program_prepare_multi(td_program *p) TD_CHECKED;
td_status td_program_run_multi(const td_program *p, int first) TD_CHECKED;
void td_program_free_multi(td_program *p); /* before the kernels */

/** The memory of inputs and outputs, if the device's memory is not the host's. */
td_status td_program_allocate_copies(td_program *p) TD_CHECKED;
td_status td_program_allocate_outputs(td_program *p) TD_CHECKED; /* of all micro-batches */
void td_program_free_copies(td_program *p);

/** Then, in every run: queue the copies of inputs, TD_EARG if one was never bound; of outputs. */
td_status td_program_copy_inputs(td_program *p) TD_CHECKED;
td_status td_program_copy_outputs(td_program *p) TD_CHECKED;

/** The same for several micro-batches, in the host's memory: TD_EARG if `g` has no rows; take the
    inputs of micro-batch k; keep its outputs.  `by` runs it: p, or one of its lanes. */
td_status td_program_allocate_rows(td_program *p) TD_CHECKED;
void td_program_take_rows(const td_program *p, td_program *by, int k);
void td_program_keep_rows(const td_program *p, const td_program *by, int k);

/** The micro-batches of a lane; without lanes all. */
static inline int td_program_lane_batches(const td_program *p)
{
    return p->micro_batches / p->n_lanes;
}

/** Run all micro-batches, each lane its own by `run`; the setup of all of them has run. */
td_status td_program_run_lanes(td_program *p, td_status (*run)(td_program *p)) TD_CHECKED;

/** Before kernels of a program with lanes are prepared or run by the calling thread, for one thread
    as all of its kernels are; afterwards, with the result.  Nothing without lanes. */
int td_program_use_lane(const td_program *p);
void td_program_use_all_lanes(const td_program *p); /* those of the setup: for as many as lanes */
void td_program_leave_lane(const td_program *p, int threads);

/** Set the addresses of reshaped inputs, whose memory may have changed. */
void td_program_follow_views(td_program *p);

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

/** Touch the pages that begin in the share of thread t of a new tensor of zeros. */
void td_touch_share(char *p, size_t bytes, int t, int threads);

#endif
