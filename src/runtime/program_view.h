/*
 * runtime/program_view.h -- a compiled program as reports, traces and measurements see it
 */
#ifndef TD_RUNTIME_PROGRAM_VIEW_H
#define TD_RUNTIME_PROGRAM_VIEW_H

#include "plan/plan.h"
#include "tandem/program.h"

/** Borrowed from the program; valid as long as it exists. */
typedef struct {
    const td_graph *graph; /* after all passes */
    const td_plan *plan;
    const bool *is_setup; /* [graph nodes] runs once after parameters change */
} td_program_view;

td_program_view td_program_view_of(const td_program *p);

/** Does a kernel run for this node?  Leaves and aliases have none. */
static inline bool td_node_has_kernel(const td_node *n)
{
    return !n->op->is_leaf && !n->op->is_alias;
}

/** Seconds that the program's runs so far have waited for sums over ranks. */
double td_program_waited_s(const td_program *p);

/** Leave out the sums over ranks from now on, or add them again: for measurements. */
void td_program_skip_sums(td_program *p, bool skips);

#endif
