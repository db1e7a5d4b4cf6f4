/*
 * loggers/throughput.h -- SSD320's training throughput: the mean of the last quarter of speed lines
 *
 * The reference program prints `global_step/sec` every 100 steps; its benchmark scripts run 1250
 * steps, select the last quarter of those lines (3 of 12) and report their mean times the images
 * per step.
 */
#ifndef TD_LOGGERS_THROUGHPUT_H
#define TD_LOGGERS_THROUGHPUT_H

enum { TD_SPEED_LINE_STEPS = 100, TD_SPEED_LINES = 12 };

typedef struct {
    int n, n_kept; /* lines; selected lines.  0: there was none */
    double mean;   /* mean of the selected lines, in their unit; NaN if none */
} td_last_quarter;

/** The last quarter of `speeds` [n], in order: without the first 3 n / 4, rounded down. */
td_last_quarter td_last_quarter_of(const double *speeds, int n);

/** Steps per line: 100, or for runs too short for 12 lines a twelfth of n_steps, at least 1. */
int td_speed_line_steps(int n_steps);

/** The same, in steps/s, from the `seconds` [n_steps] of each step. */
td_last_quarter td_last_quarter_of_steps(const double *seconds, int n_steps);

#endif
