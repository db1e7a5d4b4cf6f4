/*
 * ir/leaf.h -- the leaf ops, which are part of the graph itself; all other ops are in src/ops
 */
#ifndef TD_IR_LEAF_H
#define TD_IR_LEAF_H

#include "ir/op.h"

extern const td_op td_op_input, td_op_param;

/* attributes of param */
typedef enum { TD_ROLE_WEIGHT, TD_ROLE_STAT, TD_ROLE_MOMENTUM, TD_ROLE_COPY } td_role;
typedef enum {
    TD_INIT_ZEROS,
    TD_INIT_ONES,
    TD_INIT_NORMAL,
    TD_INIT_UNIFORM,
    TD_INIT_TRUNCATED_NORMAL,
    TD_INIT_CONSTANT
} td_init;
typedef struct {
    int role; /* td_role */
    int init; /* td_init */
    double scale;
    const char *of; /* role copy: the parameter it is a copy of */
} td_param_attr;

#endif
