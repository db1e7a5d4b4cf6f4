/*
 * throughput.c -- the mean of the last quarter of speed lines
 */
#include "loggers/throughput.h"

#include <math.h>

td_last_quarter td_last_quarter_of(const double *speeds, int n)
{
    const int first = (int)((long long)n * 3 / 4);
    td_last_quarter q = { .n = n, .n_kept = n - first, .mean = (double)NAN };
    double sum = 0;
    for (int i = first; i < n; i++)
        sum += speeds[i];
    if (q.n_kept > 0)
        q.mean = sum / q.n_kept;
    return q;
}

int td_speed_line_steps(int n_steps)
{
    if (n_steps >= TD_SPEED_LINES * TD_SPEED_LINE_STEPS)
        return TD_SPEED_LINE_STEPS;
    return n_steps >= TD_SPEED_LINES ? n_steps / TD_SPEED_LINES : 1;
}

td_last_quarter td_last_quarter_of_steps(const double *seconds, int n_steps)
{
    const int each = td_speed_line_steps(n_steps), n = n_steps / each;
    const int first = (int)((long long)n * 3 / 4);
    td_last_quarter q = { .n = n, .n_kept = n - first, .mean = (double)NAN };
    double sum = 0;
    for (int line = first; line < n; line++) {
        double took = 0;
        for (int i = 0; i < each; i++)
            took += seconds[line * each + i];
        sum += each / took;
    }
    if (q.n_kept > 0)
        q.mean = sum / q.n_kept;
    return q;
}
