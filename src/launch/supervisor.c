/*
 * supervisor.c -- starts, watches and ends the processes of `tandem launch`
 */
#include "launch/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"

#define MS INT64_C(1000000)
enum {
    TURN_MS = 50,
    SEIZE_MS = 1000,     /* after a failure: send SIGKILL to stopped processes */
    TERM_MS = 2000,      /* send SIGTERM to the others */
    KILL_MS = 3000,      /* then SIGKILL */
    ASK_MS = 500,        /* between calls of is_over */
    OVER_TERM_MS = 4000, /* after is_over was true: SIGTERM, then SIGKILL */
    OVER_KILL_MS = 7000,
    STOP_MS = 30000 /* after a rank stopped because of a signal: the others may still be saving */
};

td_status td_children_make(int n, td_children *out)
{
    *out = (td_children){ .n = n };
    out->at = td_alloc((size_t)n, sizeof *out->at);
    if (!out->at)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        out->at[i].out = out->at[i].file = -1;
    return TD_OK;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void td_children_release(td_children *c)
{
    for (int i = 0; c && c->at && i < c->n; i++) {
        close_one(&c->at[i].out);
        close_one(&c->at[i].file);
    }
    if (c)
        td_free(c->at);
}

/* --- starting --------------------------------------------------------------------------------- */

/* in the new process: sets up descriptors 0, 1, 2, or exits */
static void become(pid_t parent, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    const int in = open("/dev/null", O_RDONLY);
    if (in < 0 || dup2(in, 0) < 0 || (out >= 0 && (dup2(out, 1) < 0 || dup2(out, 2) < 0)))
        _exit(1);
    td_signals_default();
}

td_status td_child_fork(td_children *c, int i, bool is_heard, bool *is_child)
{
    td_child *x = &c->at[i];
    int out[2] = { -1, -1 };
    const pid_t parent = getpid();
    sigset_t before;
    td_status st = TD_OK;
    *is_child = false;
    if (is_heard && pipe2(out, O_CLOEXEC) != 0)
        TD_OUT(td_error_errno(TD_EIO, "%s: cannot create a pipe", x->name));
    /* until the new process has the default actions: the handler of this program would note a
       signal there, and exec forgets what was noted */
    td_signals_block(&before);
    const pid_t pid = fork();
    if (pid == 0)
        become(parent, out[1]);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid == 0) {
        *is_child = true;
        return TD_OK;
    }
    if (pid < 0)
        TD_OUT(td_error_errno(TD_EIO, "cannot start %s", x->name));
    if (out[0] >= 0)
        (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    x->out = out[0];
    out[0] = -1;
    x->pid = pid;
    c->n_living++;
    td_log(TD_LOG_DEBUG, "launch", "%s is process %d", x->name, (int)pid);
out:
    close_one(&out[0]);
    close_one(&out[1]);
    return st;
}

/* --- watching --------------------------------------------------------------------------------- */

static void keep_tail(td_child *c, const char *bytes, size_t n)
{
    if (n > TD_CHILD_TAIL) {
        bytes += n - TD_CHILD_TAIL;
        n = TD_CHILD_TAIL;
    }
    const size_t over = c->n_tail + n > TD_CHILD_TAIL ? c->n_tail + n - TD_CHILD_TAIL : 0;
    memmove(c->tail, c->tail + over, c->n_tail - over);
    c->n_tail -= over;
    memcpy(c->tail + c->n_tail, bytes, n);
    c->n_tail += n;
}

static void hear(td_child *c)
{
    char bytes[4096];
    for (;;) {
        ssize_t n = read(c->out, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(c->out);
            c->out = -1;
            return;
        }
        keep_tail(c, bytes, (size_t)n);
        for (ssize_t at = 0; c->file >= 0 && at < n;) {
            ssize_t k = write(c->file, bytes + at, (size_t)(n - at));
            if (k < 0 && errno == EINTR)
                continue;
            if (k <= 0) {
                td_log(TD_LOG_WARN, "launch", "%s: cannot write its log: %s", c->name,
                       strerror(errno));
                close(c->file);
                c->file = -1;
                break;
            }
            at += k;
        }
    }
}

static void hear_all(td_children *l, struct pollfd *polls)
{
    nfds_t n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->at[i].out >= 0)
            polls[n++] = (struct pollfd){ .fd = l->at[i].out, .events = POLLIN };
    (void)poll(polls, n, TURN_MS);
    for (int i = 0; i < l->n; i++)
        if (l->at[i].out >= 0)
            hear(&l->at[i]);
}

void td_children_signal(const td_children *l, int sig)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i].pid > 0)
            kill(l->at[i].pid, sig);
}

bool td_child_is_quiet(int code)
{
    return code == 3 || code == 4;
}

/* Was it killed, or was it a usage error?  Neither is caused by another rank. */
static bool is_own_fault(int code)
{
    return code == 2 || code >= 128;
}

/*
 * Is `c` a better candidate for the cause than the current one?  A quiet exit code is the worst; a
 * rank that failed on its own is better than one that ended because of it, even in the same poll.
 */
static bool is_cause(const td_children *l, const td_child *c)
{
    const td_child *first = l->first_failed;
    if (c->code == 0 || c->is_ended)
        return false;
    if (!first)
        return true;
    if (td_child_is_quiet(first->code))
        return !td_child_is_quiet(c->code);
    return is_own_fault(c->code) && !is_own_fault(first->code) &&
           td_now_ns() - l->failed_ns < TERM_MS * MS;
}

/* Collect children that have ended. */
static void reap(td_children *l)
{
    for (int i = 0; i < l->n; i++) {
        td_child *c = &l->at[i];
        int how;
        if (c->pid <= 0 || waitpid(c->pid, &how, WNOHANG) != c->pid)
            continue;
        td_log(TD_LOG_DEBUG, "launch", "%s has ended", c->name);
        c->pid = 0;
        c->by_signal = WIFSIGNALED(how);
        c->code = c->by_signal ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        l->n_living--;
        if (is_cause(l, c)) {
            l->first_failed = c;
            l->failed_ns = td_now_ns();
        }
    }
}

/* Is the process stopped, by SIGSTOP or a debugger? */
static bool is_stopped(pid_t pid)
{
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    fclose(f);
    return state == 'T' || state == 't';
}

static void end_stopped(const td_children *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i].pid > 0 && is_stopped(l->at[i].pid)) {
            l->at[i].is_ended = true;
            kill(l->at[i].pid, SIGKILL);
        }
}

static void end_others(td_children *l, int *sent)
{
    const int64_t since = (td_now_ns() - l->failed_ns) / MS;
    const bool is_stop = td_child_is_quiet(l->first_failed->code);
    if (!is_stop && since >= SEIZE_MS)
        end_stopped(l);
    if (*sent < 1 && since >= (is_stop ? STOP_MS : TERM_MS)) {
        for (int i = 0; i < l->n; i++)
            l->at[i].is_ended |= l->at[i].pid > 0;
        td_children_signal(l, SIGTERM);
        *sent = 1;
    } else if (*sent < 2 && since >= (is_stop ? STOP_MS + TERM_MS : KILL_MS)) {
        td_children_signal(l, SIGKILL);
        *sent = 2;
    }
}

/* ends children that should have ended by themselves */
static void end_overdue(td_children *l)
{
    const int64_t now = td_now_ns();
    if (!l->over_ns && now - l->asked_ns >= ASK_MS * MS) {
        l->asked_ns = now;
        l->over_ns = l->is_over() ? now : 0;
    }
    const int64_t since = l->over_ns ? (now - l->over_ns) / MS : 0;
    if (since < OVER_TERM_MS)
        return;
    for (int i = 0; i < l->n; i++)
        if (l->at[i].pid > 0 && (!l->is_forced || since >= OVER_KILL_MS))
            kill(-l->at[i].pid, since >= OVER_KILL_MS ? SIGKILL : SIGTERM);
    l->is_forced = true;
}

/* forwards SIGINT and SIGTERM, once */
static void forward_signal(td_children *l)
{
    const int sig = td_signal_caught();
    if (sig && !l->was_told) {
        td_children_signal(l, l->stop_signal ? l->stop_signal : sig);
        l->was_told = true;
    }
}

td_status td_children_watch(td_children *l)
{
    int sent = 0;
    struct pollfd *polls = td_alloc((size_t)l->n, sizeof *polls);
    if (!polls)
        return TD_ENOMEM;
    while (l->n_living > 0) {
        forward_signal(l);
        hear_all(l, polls);
        reap(l);
        if (l->first_failed)
            end_others(l, &sent);
        if (l->is_over && l->n_living > 0)
            end_overdue(l);
    }
    hear_all(l, polls);
    td_free(polls);
    return TD_OK;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Print the last complete lines of its output. */
static void show_tail(const td_child *c)
{
    enum { LINES = 8 };
    size_t from = c->n_tail;
    int lines = 0;
    while (from > 0 && lines < LINES) {
        from--;
        lines += from > 0 && c->tail[from - 1] == '\n';
    }
    for (size_t at = from; at < c->n_tail;) {
        size_t n = 0;
        while (at + n < c->n_tail && c->tail[at + n] != '\n')
            n++;
        fprintf(stderr, "%s: %.*s\n", c->name, (int)n, c->tail + at);
        at += n + 1;
    }
}

const td_child *td_children_cause(const td_children *l)
{
    const td_child *first = l->first_failed;
    if (!first || !l->blamed || td_child_is_quiet(first->code) || is_own_fault(first->code))
        return first;
    return l->blamed;
}

static void name_cause(const td_child *c, char out[TD_CAUSE_BYTES])
{
    if (c->is_ended)
        snprintf(out, TD_CAUSE_BYTES, "%s stopped responding and was killed", c->name);
    else if (c->by_signal)
        snprintf(out, TD_CAUSE_BYTES, "%s was killed by signal %d (%s)", c->name, c->code - 128,
                 strsignal(c->code - 128));
    else
        snprintf(out, TD_CAUSE_BYTES, "%s exited with code %d", c->name, c->code);
}

bool td_children_lost_one(const td_children *l)
{
    const td_child *c = td_children_cause(l);
    return c && !td_child_is_quiet(l->first_failed->code) &&
           (c->is_ended || c->by_signal || c->code >= 128);
}

int td_children_tell(const td_children *l, bool is_shown, char cause[TD_CAUSE_BYTES])
{
    const td_child *first = l->first_failed, *c = td_children_cause(l);
    *cause = '\0';
    if (!c)
        return 0;
    if (td_child_is_quiet(first->code)) /* the rank has logged it */
        return first->code;
    if (is_shown)
        show_tail(c);
    name_cause(c, cause);
    return c->is_ended || !c->code ? first->code : c->code;
}
