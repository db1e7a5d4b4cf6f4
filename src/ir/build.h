/*
 * ir/build.h -- the graph builder's internal functions, for ops, models and passes
 *
 * Errors are sticky: after the first failure every call returns a dummy value and changes nothing.
 */
#ifndef TD_IR_BUILD_H
#define TD_IR_BUILD_H

#include "ir/graph.h"
#include "ir/op.h"

#define TD_ARGS(...)   ((td_value *const[]){ __VA_ARGS__ })
#define TD_N_ARGS(...) ((int)(sizeof((td_value *const[]){ __VA_ARGS__ }) / sizeof(td_value *)))

/**
 * Emit a node; `attr` (op->attr_bytes) is copied, NULL means defaults.  Returns output 0.  A NULL
 * operand ends the list of operands if the op allows fewer.
 */
td_value *td_emit_n(td_builder *b, const td_op *op, const void *attr, int n_in, td_value *const *in,
                    td_value **out);

/** Like td_emit_n, with the operands as arguments: td_emit(b, &td_op_add, NULL, x, y). */
#define td_emit(b, op, attr, ...)                                                                  \
    td_emit_n(b, op, attr, TD_N_ARGS(__VA_ARGS__), TD_ARGS(__VA_ARGS__), NULL)

/** Emit an input or a parameter with exactly this type and attributes (param_attr or NULL). */
td_value *td_emit_leaf(td_builder *b, const td_op *op, const void *attr, const char *name,
                       const td_type *type);

/** Set the layout of a value just emitted, before it is used. */
void td_build_set_layout(td_builder *b, td_value *v, const char *layout);

/** Name a value just emitted; if the name is in use, a number is appended. */
void td_build_set_name(td_builder *b, td_value *v, const char *name);

/** Record a failure; only the first one is kept. */
void td_build_fail(td_builder *b, td_status st);
bool td_build_ok(const td_builder *b);

/** The value that calls return after a failure. */
td_value *td_build_dummy(td_builder *b);

/** Finish without the verifier (the pass driver runs it). */
td_status td_build_finish(td_builder *b, td_graph **out) TD_CHECKED;
void td_build_abandon(td_builder *b);

/** A copy of the op's default attributes, overridden by those in `text`, in the builder's arena. */
void *td_build_attr(td_builder *b, const td_op *op, const char *text);

/** A type's text form in the builder's arena; "" after a failure. */
const char *td_build_type_text(td_builder *b, const td_type *t);

#endif
