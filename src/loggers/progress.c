/*
 * progress.c -- logs and draws the progress of a pass
 *
 * All ranks have the same number of images, so the total is one rank's images times the number of
 * ranks.
 */
#include "loggers/progress.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define DRAW_NS 100000000 /* least time between two updates: a terminal must not slow down a run */

void td_progress_begin(td_progress *p, const td_loader *ld, int64_t max_batches)
{
    const int64_t n = td_loader_batches(ld);
    p->n_batches = max_batches >= 0 && max_batches < n ? max_batches : n;
    p->begin_ns = p->logged_ns = td_now_ns();
    p->drawn_ns = 0;
    p->has_terminal = td_log_has_terminal();
}

static void add_left(double seconds, char *out, size_t n)
{
    if (seconds < 100)
        snprintf(out, n, "%.0f s", seconds);
    else if (seconds < 100 * 60)
        snprintf(out, n, "%.0f min", seconds / 60);
    else
        snprintf(out, n, "%.1f h", seconds / 3600);
}

void td_progress_text(const td_progress *p, int64_t done, int64_t n_images, double seconds,
                      char *out, size_t n)
{
    char left[32], in_all[32];
    const double s = seconds > 0 ? seconds : 1e-9, batch_s = s / (double)done;
    const int64_t at = p->batches_before + done, n_left = p->n_batches - at;
    add_left(batch_s * (double)n_left, left, sizeof left);
    add_left(batch_s * (double)(n_left + p->batches_after), in_all, sizeof in_all);
    snprintf(out, n, "%s %lld/%lld: %.1f images/s, about %s left%s%s%s", p->what, (long long)at,
             (long long)p->n_batches, (double)n_images * td_comm_size(p->comm) / s, left,
             p->batches_after ? ", " : "", p->batches_after ? in_all : "",
             p->batches_after ? " in all" : "");
}

static bool is_due(const td_progress *p, int64_t done, int64_t now)
{
    return p->every && done % p->every == 0 && done < p->n_batches &&
           (double)(now - p->logged_ns) * 1e-9 >= p->min_interval_s;
}

void td_progress_step(td_progress *p, int64_t done, int64_t n_images)
{
    char text[160], line[200];
    td_ticker_count(p->ticker, done);
    if (!p->module || !(p->has_terminal || p->every))
        return;
    const int64_t now = td_now_ns();
    const bool is_drawn = p->has_terminal && now - p->drawn_ns >= DRAW_NS;
    const bool is_said = is_due(p, done, now);
    if (!(is_drawn || is_said) || !td_log_wants(TD_LOG_INFO, p->module))
        return;
    td_progress_text(p, done, n_images, (double)(now - p->begin_ns) * 1e-9, text, sizeof text);
    td_ticker_note_line(p->ticker);
    if (is_said) {
        td_log(TD_LOG_INFO, p->module, "%s", text);
        p->logged_ns = now;
    }
    if (is_drawn) {
        snprintf(line, sizeof line, "%s: %s", p->module, text);
        td_log_progress(line);
        p->drawn_ns = now;
    }
}

void td_progress_end(td_progress *p)
{
    if (p->drawn_ns)
        td_log_progress(NULL);
    p->drawn_ns = 0;
}
