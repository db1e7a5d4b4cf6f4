/*
 * report/run_seeds.h -- statistics over runs that differ only in the seed
 *
 *     groups   runs with the same settings except the seed: n, mean, deviation, ... of each result
 *     pairs    groups that differ only in the precision: is the difference of their means larger
 *              than that between seeds?
 *
 * Settings of outputs and of the machine are ignored.  A run that has not ended, or ended before
 * the others of its group, is listed, but excluded from the statistics.
 */
#ifndef TD_REPORT_RUN_SEEDS_H
#define TD_REPORT_RUN_SEEDS_H

#include "base/text.h"
#include "report/run_log.h"
#include "report/run_table.h"

enum {
    TD_SEED_RUNS = 256,    /* most runs of a report */
    TD_SEED_METRICS = 6,   /* AP, AP50, top-1, top-K, top-1 of the averages, mAP */
    TD_SEED_SELECTIONS = 2 /* best and final */
};

/* Statistics of n numbers; sd (sample, n - 1) is NaN if n < 2, all are NaN if n is 0. */
typedef struct {
    int n;
    double mean, sd, min, max, median;
} td_spread;

typedef struct {
    int *runs; /* [n_runs] indices of runs, in order; [0] has the group's settings */
    int n_runs;
    bool *is_left_out; /* [n_runs] */
    int recipe;        /* the same for groups that differ only in the precision */
    bool is_shown;     /* it or a group of the same recipe has several seeds */
    td_spread spread[TD_SEED_METRICS][TD_SEED_SELECTIONS];
} td_seed_group;

/* `group` compared with `base`, the recipe's float32 group or its first. */
typedef struct {
    int base, group;
    double difference[TD_SEED_METRICS][TD_SEED_SELECTIONS]; /* difference of the means; NaN: none */
    double sd[TD_SEED_METRICS][TD_SEED_SELECTIONS];         /* pooled over both groups' seeds */
} td_seed_pair;

typedef struct {
    const td_run_log *runs;              /* borrowed */
    const char *metric[TD_SEED_METRICS]; /* NULL: no run has it */
    td_seed_group *groups;
    td_seed_pair *pairs;
    int n_groups, n_pairs;
    td_arena arena;
} td_seeds;

/** Group the runs.  Release *out even after a failure.  n is at most TD_SEED_RUNS. */
td_status td_seeds_find(const td_run_log *runs, int n, td_seeds *out) TD_CHECKED;
void td_seeds_release(td_seeds *s);

/** Is any group shown? */
bool td_seeds_any(const td_seeds *s);

/** Statistics of n numbers; sorts x. */
td_spread td_spread_of(double *x, int n);

/** Is the difference at most one standard deviation of the seeds? */
bool td_seed_is_within(const td_seed_pair *p, int metric, int selection);

extern const char *const td_seed_selections[TD_SEED_SELECTIONS]; /* "best", "final" */

/**
 * "ssd320, bf16, lr 0.01": network, precision and, if several groups share these, settings that
 * differ.
 */
void td_seeds_label(const td_seeds *s, int group, td_text *out);
const char *td_seeds_precision(const td_seeds *s, int group);

/* --- output (run_seeds_show.c) ---------------------------------------------------------------- */

/** Append both tables; nothing if no group is shown.  Not for CSV. */
void td_seeds_text(const td_seeds *s, td_run_table_form form, td_text *out);

/** Append two members, `"seeds": [...], "precisions": [...]`. */
void td_seeds_json(const td_seeds *s, td_text *out);

/** Append two sections of the page; nothing if no group is shown. */
void td_seeds_html(const td_seeds *s, td_text *out);

#endif
