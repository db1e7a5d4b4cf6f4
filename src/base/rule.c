/*
 * rule.c -- parses "NAME>=LIMIT"
 */
#include "base/rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

td_status td_rule_parse(const char *rule, const char *like, td_rule *out)
{
    size_t n = strcspn(rule, "<>");
    if (n == 0 || n >= sizeof out->name || rule[n] == '\0' || rule[n + 1] != '=' ||
        !td_text_to_real(rule + n + 2, &out->limit))
        return td_error(TD_EUSAGE, "--require: '%s' is not a condition like %s", rule, like);
    if (!isfinite(out->limit))
        return td_error(TD_EUSAGE, "--require: '%s': the limit is not finite, wanted %s", rule,
                        like);
    out->is_at_least = rule[n] == '>';
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, rule);
    return TD_OK;
}
