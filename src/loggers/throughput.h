/*
 * loggers/throughput.h -- the SSD320 edition's measure of training: the last quarter of the lines
 *
 * Its programs print `global_step/sec` every 100 steps; its benchmark scripts run 1250 steps, take
 * the last quarter of those lines (3 of 12) and report their mean, times the images of a step.
 */
#ifndef TD_LOGGERS_THROUGHPUT_H
#define TD_LOGGERS_THROUGHPUT_H

enum { TD_SPEED_LINE_STEPS = 100, TD_SPEED_LINES = 12 };

typedef struct {
    int n, n_kept; /* lines; those that count.  0: there was none */
    double mean;   /* of those: unit of the lines; NaN if none */
} td_last_quarter;

/** `speeds` of n lines, in order; keeps those after the first 3 n / 4, rounded down. */
td_last_quarter td_last_quarter_of(const double *speeds, int n);

/** Steps of a line, of a run that is shorter a twelfth of its steps; at least 1. */
int td_speed_line_steps(int n_steps);

/** Whole lines of n_steps steps that took so many seconds each, in steps/s. */
td_last_quarter td_last_quarter_of_steps(const double *seconds, int n_steps);

#endif
