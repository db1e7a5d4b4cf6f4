/*
 * amp/amp_propagate.h -- type propagation of mixed precision: decides which values are half, and
 * where casts are inserted
 *
 * The whole analysis of TensorFlow's auto_mixed_precision, without any rewriting.  It does not
 * depend on our graph: the amp pass and the golden tests describe theirs in three arrays.
 *
 *   node      an op: class, eligible, and flags for special rules
 *   vertex    one type of a node: fused batch norm has one for x and y, one for the statistics.
 *             Vertices of a node are consecutive; nodes and vertices are in graph order.
 *   edge      an output port, with the vertex that types it -> an input port, with its vertex.
 *             In order of the consumer and its ports; control edges are left out.
 *
 *     td_amp_propagate_result r;
 *     TD_TRY(td_amp_propagate(&graph, &(td_amp_propagate_opts){ .mode = TD_AMP_MODE_BF16 }, &r));
 *     for (int v = 0; v < graph.n_vertices; v++)
 *         if (r.is_half[v]) ...
 *     td_amp_propagate_release(&r);
 *
 * Deterministic; time and memory are linear in vertices and edges (except for tensor lists: each
 * reader looks up all its writers); no recursion.
 */
#ifndef TD_AMP_AMP_PROPAGATE_H
#define TD_AMP_AMP_PROPAGATE_H

#include <stdbool.h>
#include <stdint.h>

#include "amp/amp_lists.h"
#include "base/arena.h"

/* Properties of a node in addition to its class. */
enum {
    TD_AMP_IS_CONST = 1 << 0,    /* casts of it are not counted; never forced */
    TD_AMP_IS_VARIABLE = 1 << 1, /* a parameter, a variable, a resource read: casts not counted */
    TD_AMP_IS_REF_VARIABLE = 1 << 2, /* a variable that an Identity reads: see IDENTITY */
    TD_AMP_IS_IDENTITY = 1 << 3,     /* directly after a REF_VARIABLE it is unchanged */
    TD_AMP_IS_ENTER = 1 << 4,        /* likewise an enter after such an identity or enter */
    TD_AMP_IS_MERGE = 1 << 5,
    TD_AMP_IS_NEXT_ITERATION = 1 << 6, /* has the same type as the merges it feeds */
    TD_AMP_IS_CAST = 1 << 7,           /* its f32 result may become half directly */
    TD_AMP_IS_LIST_OP = 1 << 8,        /* an op of a tensor list: has its cluster's type */
    TD_AMP_IS_LIST_READER = 1 << 9,    /* takes elements out */
    TD_AMP_IS_LIST_WRITER = 1 << 10,   /* puts elements in */
    TD_AMP_IS_HANDLE_END = 1 << 11,    /* its lists come from or go to unknown ops */
    TD_AMP_IS_UNFORCED = 1 << 12 /* stateful, reference typed, unregistered, dense cross-entropy */
};

typedef struct {
    const char *name; /* borrowed; casts are named after it */
    td_amp class;
    bool is_eligible; /* may be changed: on the right device, float32 result not required */
    uint32_t flags;   /* TD_AMP_IS_... */
    int first_vertex, n_vertices;
} td_amp_node;

typedef enum {
    TD_AMP_TYPE_F32,
    TD_AMP_TYPE_QUANTISED, /* 8-bit affine and the like */
    TD_AMP_TYPE_VARIANT,   /* a list handle */
    TD_AMP_TYPE_OTHER      /* integers, bool, half already */
} td_amp_type;

typedef struct {
    int node;
    td_amp_type type; /* before the rewrite */
    bool type_ok;     /* the op's definition allows half here (no: a batch norm's statistics) */
    bool kernel_ok;   /* a half kernel exists, with all other types unchanged */
    bool is_fixed;    /* has a fixed type: making it half fails the rewrite */
} td_amp_vertex;

typedef struct {
    int from, from_port; /* vertex; output port of its node */
    int to, to_port;     /* vertex; input port of its node */
} td_amp_edge;

/* Everything is borrowed for the call. */
typedef struct {
    const td_amp_node *nodes;
    const td_amp_vertex *vertices;
    const td_amp_edge *edges;
    int n_nodes, n_vertices, n_edges;
} td_amp_graph;

/* Zero-initialise for TensorFlow's defaults, fp16. */
typedef struct {
    td_amp_rule rule;
    td_amp_mode mode; /* for names, messages and the follow step of 2.15 */
    td_amp_level level;
    bool is_emulated;            /* float32 kernels between casts; for TD_AMP_MODE_CPU */
    const char *const *conflict; /* ops in two lists: the rewrite fails (td_amp_lists_conflicts) */
    int n_conflicts;
} td_amp_propagate_opts;

/* The step that decided a vertex. */
typedef enum {
    TD_AMP_STEP_NONE,      /* unchanged: float32 */
    TD_AMP_STEP_ALLOW,     /* an allow op (or forced) */
    TD_AMP_STEP_DENY,      /* a deny op, or deny spread to it from `source` */
    TD_AMP_STEP_FILL,      /* on a path from an allow op to `source`, an allow op */
    TD_AMP_STEP_FOLLOW,    /* an infer op after `source`, which is half */
    TD_AMP_STEP_CLEAR,     /* only clear ops between it and `source`, which is half */
    TD_AMP_STEP_LIST,      /* same type as its tensor list: `source` decided */
    TD_AMP_STEP_LOOP,      /* same type as its loop: `source` decided */
    TD_AMP_STEP_RETARGET,  /* an existing cast, all of whose users (`source` the first) are half */
    TD_AMP_STEP_FORCE_DOWN /* was half as an allow op, reverted: failed the type test */
} td_amp_step;

/* A value: a port of a node, or a cast's result if cast >= 0 (then node is -1, port 0). */
typedef struct {
    int node, port;
    int cast;
} td_amp_end;

typedef struct {
    char *name; /* "conv-0-CastToFp16-0-AutoMixedPrecision" */
    td_amp_end from;
    int vertex;      /* the vertex that types the original port */
    bool is_to_half; /* otherwise to float32 */
    bool is_counted; /* in n_casts: to half, not after a constant or variable */
    td_amp_end *to;  /* its consumers: input ports */
    int n_to;
} td_amp_cast;

typedef struct {
    /* Per vertex.  Colours: - not float32, . left alone, D denied, A allow list, B fill, F follow,
       C clear, L list or loop, K retargeted cast; lower case: later reverted. */
    char *colour;      /* NUL after the last */
    bool *is_half;     /* float32 vertices: half after the rewrite? */
    td_amp_step *step; /* what decided the colour */
    int *source;       /* the vertex that caused it; -1: none */

    td_amp_cast *casts; /* in order of producer and port; all of one port together */
    int n_casts;
    int n_converted;     /* X: vertices that change their type; 0 under emulation */
    int n_casts_counted; /* N: casts to half, except after constants and variables */
    char **messages;     /* [n_messages], the last is the statistics line or why nothing changed */
    int n_messages;
    bool is_failed; /* the rewrite failed: the graph is unchanged */

    td_arena memory; /* private: everything above */
} td_amp_propagate_result;

/**
 * Propagate types through `g`.  On success the caller releases *r; on failure it is empty.
 *
 *   TD_EARG    the description is inconsistent: an index out of range, a node without its
 *              vertices, an edge between missing vertices
 *   TD_ENOMEM
 *
 * A rewrite that fails in TensorFlow (r->is_failed) is a result, not an error.
 */
TD_CHECKED td_status td_amp_propagate(const td_amp_graph *g, const td_amp_propagate_opts *opts,
                                      td_amp_propagate_result *r);
void td_amp_propagate_release(td_amp_propagate_result *r);

/** "allow", "deny", "fill", "follow", "clear", ...: as printed by inspect. */
const char *td_amp_step_name(td_amp_step step);

#endif
