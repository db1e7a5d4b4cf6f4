/*
 * number_list.c -- reads options that are lists of numbers
 */
#include "benchmark/number_list.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/status.h"

static td_status read(const char *option, const char *text, bool is_whole, double most,
                      td_number_list *out)
{
    out->n = 0;
    for (const char *p = text; *p || p == text;) {
        char *end;
        const double x = is_whole ? (double)strtol(p, &end, 10) : strtod(p, &end);
        if (end == p || (*end && *end != ',') || (*end == ',' && !end[1]))
            return td_error(TD_EUSAGE, "--%s: '%.80s' is not a list of numbers, '1,2,4'", option,
                            text);
        if (!(is_whole ? x >= 1 : x > 0) || !(x <= most))
            return td_error(TD_EUSAGE, "--%s: %.*s is out of range, wanted %s to %.*g", option,
                            (int)(end - p < 20 ? end - p : 20), p, is_whole ? "1" : "more than 0",
                            is_whole ? 10 : 6, most);
        if (out->n == TD_LIST_MAX)
            return td_error(TD_EUSAGE, "--%s: more than %d of them", option, TD_LIST_MAX);
        out->item[out->n++] = x;
        p = *end ? end + 1 : end;
    }
    return TD_OK;
}

td_status td_list_read_counts(const char *option, const char *text, int most, td_number_list *out)
{
    return read(option, text, true, most, out);
}

td_status td_list_read_numbers(const char *option, const char *text, double most,
                               td_number_list *out)
{
    return read(option, text, false, most, out);
}
