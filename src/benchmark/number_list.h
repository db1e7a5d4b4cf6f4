/*
 * benchmark/number_list.h -- reads options that are lists of numbers, '1,2,4'
 */
#ifndef TD_BENCHMARK_NUMBER_LIST_H
#define TD_BENCHMARK_NUMBER_LIST_H

#include "tandem/status.h"

enum { TD_LIST_MAX = 64 };

typedef struct {
    int n;
    double item[TD_LIST_MAX];
} td_number_list;

/** Read whole numbers from 1 to `most`.  TD_EUSAGE: names the option and what is wrong. */
TD_CHECKED td_status td_list_read_counts(const char *option, const char *text, int most,
                                         td_number_list *out);

/** Likewise numbers above 0, with fractions, up to `most`. */
TD_CHECKED td_status td_list_read_numbers(const char *option, const char *text, double most,
                                          td_number_list *out);

#endif
