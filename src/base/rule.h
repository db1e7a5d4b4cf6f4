/*
 * base/rule.h -- a requirement on a metric, for --require
 */
#ifndef TD_BASE_RULE_H
#define TD_BASE_RULE_H

#include <stdbool.h>

#include "base/status.h"

/* "NAME>=LIMIT" or "NAME<=LIMIT". */
typedef struct {
    char name[16];
    bool is_at_least;
    double limit;
} td_rule;

/** TD_EUSAGE: not a rule; the message gives `like` as an example. */
td_status td_rule_parse(const char *rule, const char *like, td_rule *out) TD_CHECKED;

#endif
