/*
 * ir/graph.h -- the graph's structs: nodes in execution order, values, outputs, all in one arena
 *
 *     graph -> nodes[0 .. n_nodes-1] -> in[] --> value -> producer
 *                                    -> out[] -> value
 *
 * A finished graph is never changed; passes read one and emit another.
 */
#ifndef TD_IR_GRAPH_H
#define TD_IR_GRAPH_H

#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"
#include "tandem/graph.h"

typedef struct td_op td_op;
typedef struct td_node td_node;

struct td_value {
    int id;           /* index into graph->values */
    const char *name; /* never NULL: a number for an unnamed value */
    td_type type;
    td_node *producer;
    int index;  /* index among the producer's outputs */
    int n_uses; /* number of operands and graph outputs that are this value */
};

struct td_node {
    int id; /* position in graph->nodes */
    const td_op *op;
    void *attr; /* op->attr_bytes, never NULL when the op has fields */
    int n_in, n_out;
    td_value **in;
    td_value **out;
};

typedef struct {
    const char *name;
    td_value *value;
} td_graph_output;

struct td_graph {
    td_arena arena;
    td_node **nodes;
    int n_nodes;
    td_value **values;
    int n_values;
    td_graph_output *outputs;
    int n_outputs;
};

static inline const td_type *td_in_type(const td_node *n, int i)
{
    return &n->in[i]->type;
}

/** Is operand i float32 while others are half, which the op must allow (op.h, wide_in)? */
bool td_is_wide_operand(const td_node *n, int i);

/** Is the value a parameter, an input? */
bool td_value_is_param(const td_value *v);
bool td_value_is_input(const td_value *v);

/** Is the value an output of the graph? */
bool td_value_is_output(const td_graph *g, const td_value *v);

/** The value whose memory `v` uses: `v` itself unless it is a reshape. */
const td_value *td_value_root(const td_value *v);

/**
 * The layout whose memory order the elements of the mask `v` have: that of its producer's operand
 * 0.
 */
const char *td_memory_order(const td_value *v);

/** Does running this node change something that outlives the run? */
bool td_node_has_effect(const td_node *n);

/** The value of this name, or NULL. */
td_value *td_graph_find(const td_graph *g, const char *name);
td_value *td_graph_output_value(const td_graph *g, const char *name);

/** The marks that a name may have beside letters and digits. */
#define TD_NAME_MARKS "_.-/:;,!?@#$~^*+=|()[]"

/** Can a value have this name?  1 to 255 of the above. */
bool td_name_fits(const char *name);

/** Is it written without quotes: letters, digits and _.-/ only? */
bool td_name_is_bare(const char *name);

/** "conv2d %x, %w {pad=1}": print a node in the text form, for messages and reports. */
void td_node_print(const td_node *n, td_text *out);

/**
 * The node's name in reports: its parameter's name without the last part, or the first output's
 * name.
 */
const char *td_node_label(const td_node *n);

td_status td_node_check(const td_node *n)
    TD_CHECKED; /* arity, ranks, attributes, infer; used by build and verify */

/**
 * Infer the types of the outputs, then their layouts.  FOLLOWS: outputs of operand 0's rank get its
 * layout; CHOOSES: as infer sets it (only reorder does); every other output is plain.
 */
td_status td_node_infer(const td_node *n, td_type *y) TD_CHECKED;

#endif
