/*
 * cli/own_ranks_start.h -- a verb that divides itself among ranks of this machine
 */
#ifndef TD_CLI_OWN_RANKS_START_H
#define TD_CLI_OWN_RANKS_START_H

#include "cli/verb.h"
#include "tandem/launch.h"

/**
 * Start the command line again on the ranks that td_own_ranks_choose decides, wait for them and set
 * *is_done and call->code; with one rank only return.  o->module is the verb's name.
 */
td_status td_cli_own_ranks(const td_call *call, const td_own_ranks *o, bool *is_done) TD_CHECKED;

#endif
