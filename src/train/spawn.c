/*
 * spawn.c -- `tandem launch`: ranks as processes, watched
 *
 *     parent   one socket for rank 0 to listen at, one secret for all
 *        fork -> own process group, processors, RANK WORLD_SIZE ... -> this program again
 *     parent   output of all but rank 0: to files; the last lines are kept to be shown
 *              a signal: to all, once;  one that failed: the others have a moment, then are ended
 *
 * Children are in process groups of their own, so that Ctrl-C reaches them through the parent
 * alone: twice it would end them at once.  They die with the parent, however that ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/field.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "rt/ranks.h"
#include "tandem/train.h"

#define MS INT64_C(1000000)
enum {
    PORT = 29500,
    TURN_MS = 50,
    SEIZE_MS = 1000,  /* after a failure: SIGKILL to those that are stopped */
    TERM_MS = 2000,   /* SIGTERM to the others */
    KILL_MS = 3000,   /* and SIGKILL */
    STOP_MS = 30000,  /* after one that a signal stopped: the others are saving, too */
    TAIL_BYTES = 4096 /* of a rank's output that is kept */
};

/* clang-format off */
static const td_field fields[] = {
    TD_INT_AS (td_ranks_opts, nproc, "nproc", "nproc_per_node|n", 1, 1, 1024, NULL,
               "ranks on this machine"),
    TD_INT    (td_ranks_opts, nnodes, 1, 1, 4096, "machines"),
    TD_INT    (td_ranks_opts, node_rank, 0, 0, 4095, "which of them this is"),
    TD_TEXT   (td_ranks_opts, master_addr, NULL, "HOST", "the first machine, where rank 0 listens"),
    TD_INT    (td_ranks_opts, master_port, 0, 0, 65535,
               "its port; 0: 29500, or on one machine a free one"),
    TD_ENUM_AS(td_ranks_opts, cpu_affinity, "cpu_affinity", "gpu_affinity", 0, td_affinity_choices,
               "processors of a rank; auto: socket_unique_contiguous where there are enough"),
    TD_TEXT   (td_ranks_opts, log_dir, NULL, "FOLDER",
               "what ranks say, but rank 0, into rank_N.log there"),
    TD_TEXT   (td_ranks_opts, log, NULL, "LEVELS", "messages: error, warn, info, debug"),
    TD_END,
};
/* clang-format on */

const td_field *td_ranks_fields(void)
{
    return fields;
}

typedef struct {
    int rank;
    pid_t pid;     /* 0: it has ended */
    int code;      /* then */
    bool is_ended; /* by us, because of another */
    int out;       /* what it says; -1: to the terminal, or closed */
    int file;      /* log; -1: none */
    char tail[TAIL_BYTES];
    size_t n_tail;
} child;

typedef struct {
    const td_ranks_opts *o;
    int n_args;
    const char *const *args;
    int size, n_living;
    child *children; /* [nproc] */
    int listener;    /* -1: rank 0 makes its own */
    int port;
    const char *addr;
    char token[65];
    td_affinity affinity;
    td_topology cpus;
    const child *first_failed;
    int64_t failed_ns;
    bool was_told; /* of a signal */
} launch;

/* --- before the fork -------------------------------------------------------------------------- */

static td_status check(const td_ranks_opts *o)
{
    if (o->node_rank >= o->nnodes)
        return td_error(TD_EUSAGE, "--node-rank: %d of %d machines, wanted 0 .. %d", o->node_rank,
                        o->nnodes, o->nnodes - 1);
    if (o->nnodes > 1 && !o->master_addr)
        return td_error(TD_EUSAGE, "--nnodes %d wants --master-addr, the first machine's",
                        o->nnodes);
    if ((int64_t)o->nnodes * o->nproc > 4096)
        return td_error(TD_EUSAGE, "%d ranks on each of %d machines: at most 4096 in all", o->nproc,
                        o->nnodes);
    return TD_OK;
}

/* on one machine rank 0 is given its socket: no port is guessed, and none is taken by another */
static td_status open_listener(launch *l)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    const int on = 1;
    l->addr = l->o->master_addr ? l->o->master_addr : "127.0.0.1";
    l->port = l->o->master_port ? l->o->master_port : PORT;
    if (l->o->nnodes > 1 || l->o->master_addr || l->size == 1)
        return TD_OK;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)l->o->master_port);
    l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->listener < 0)
        return td_error_errno(TD_EIO, "no socket");
    (void)setsockopt(l->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(l->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(l->listener, l->size + 8) != 0 ||
        getsockname(l->listener, (struct sockaddr *)&at, &n) != 0)
        return td_error_errno(TD_EIO, "--master-port: cannot listen at %d", l->o->master_port);
    l->port = ntohs(at.sin_port);
    return TD_OK;
}

/* of one machine; several have what the user sets in the environment of each */
static td_status choose_token(launch *l)
{
    unsigned char bytes[16];
    if (l->o->nnodes > 1) {
        const char *given = getenv(TD_ENV_TOKEN);
        snprintf(l->token, sizeof l->token, "%s", given ? given : "");
        return TD_OK;
    }
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_errno(TD_EIO, "no random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(l->token + 2 * i, 3, "%02x", bytes[i]);
    return TD_OK;
}

static td_status choose_affinity(launch *l)
{
    int cpus[TD_CPUS_MAX], n;
    TD_TRY(td_topology_here(&l->cpus));
    l->affinity =
        l->o->cpu_affinity ? (td_affinity)(l->o->cpu_affinity - 1) : TD_AFFINITY_CONTIGUOUS;
    if (l->o->nproc == 1 && !l->o->cpu_affinity)
        l->affinity = TD_AFFINITY_NONE;
    for (int i = 0; i < l->o->nproc; i++) {
        td_status st = td_affinity_choose(&l->cpus, l->affinity, i, l->o->nproc, cpus, &n);
        if (st == TD_OK)
            continue;
        if (l->o->cpu_affinity)
            return st;
        td_log(TD_LOG_WARN, "launch", "%d ranks on %d processors: they share them", l->o->nproc,
               l->cpus.n);
        l->affinity = TD_AFFINITY_NONE;
        td_error_clear();
        return TD_OK;
    }
    return TD_OK;
}

/* --- the child -------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const launch *l, const child *c, int local)
{
    set_number("RANK", c->rank);
    set_number("WORLD_SIZE", l->size);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", l->o->nproc);
    set_number("MASTER_PORT", l->port);
    setenv("MASTER_ADDR", l->addr, 1);
    setenv(TD_ENV_TOKEN, l->token, 1);
    unsetenv(TD_ENV_LISTEN_FD);
    if (c->rank == 0 && l->listener >= 0) {
        (void)fcntl(l->listener, F_SETFD, 0);
        set_number(TD_ENV_LISTEN_FD, l->listener);
    }
    setenv("TANDEM_AFFINITY", td_affinity_choices[l->affinity + 1], 1);
    if (l->o->log_dir)
        setenv("TANDEM_RANK_LOGS", "1", 1);
}

static _Noreturn void be_rank(const launch *l, const child *c, int local, int out, pid_t parent)
{
    static const char *const exe = "/proc/self/exe";
    int cpus[TD_CPUS_MAX], n;
    char **argv = td_alloc((size_t)l->n_args + 2, sizeof *argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!argv || getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, 0) < 0 || (out >= 0 && (dup2(out, 1) < 0 || dup2(out, 2) < 0)))
        _exit(1);
    set_environment(l, c, local);
    if (td_affinity_choose(&l->cpus, l->affinity, local, l->o->nproc, cpus, &n) != TD_OK ||
        td_affinity_apply(cpus, n) != TD_OK)
        fprintf(stderr, "tandem: warning: %s\n", td_error_message());
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    argv[0] = (char *)(uintptr_t) "tandem";
    for (int i = 0; i < l->n_args; i++)
        argv[1 + i] = (char *)(uintptr_t)l->args[i];
    execv(exe, argv);
    fprintf(stderr, "tandem: error: cannot start '%s' again: %s\n", exe, strerror(errno));
    _exit(1);
}

/* --- starting --------------------------------------------------------------------------------- */

static td_status open_log(const launch *l, child *c)
{
    char name[32];
    if (!l->o->log_dir)
        return TD_OK;
    snprintf(name, sizeof name, "rank_%d.log", c->rank);
    char *path = td_path_join(l->o->log_dir, name);
    if (!path)
        return TD_ENOMEM;
    c->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    td_status st = c->file < 0 ? td_error_errno(TD_EIO, "cannot write '%s'", path) : TD_OK;
    td_free(path);
    return st;
}

static td_status start_one(launch *l, int local)
{
    child *c = &l->children[local];
    int fd[2] = { -1, -1 };
    const pid_t parent = getpid();
    c->rank = td_rank_of(l->o->node_rank, l->o->nproc, local);
    if (local > 0) {
        TD_TRY(open_log(l, c));
        if (pipe2(fd, O_CLOEXEC) != 0)
            return td_error_errno(TD_EIO, "rank %d: no pipe", c->rank);
        (void)fcntl(fd[0], F_SETFL, O_NONBLOCK);
    }
    c->out = fd[0];
    pid_t pid = fork();
    if (pid == 0)
        be_rank(l, c, local, fd[1], parent);
    if (fd[1] >= 0)
        close(fd[1]);
    if (pid < 0)
        return td_error_errno(TD_EIO, "rank %d cannot be started", c->rank);
    c->pid = pid;
    l->n_living++;
    td_log(TD_LOG_DEBUG, "launch", "rank %d is process %d", c->rank, (int)pid);
    return TD_OK;
}

/* --- watching --------------------------------------------------------------------------------- */

static void keep_tail(child *c, const char *bytes, size_t n)
{
    if (n > TAIL_BYTES) {
        bytes += n - TAIL_BYTES;
        n = TAIL_BYTES;
    }
    const size_t over = c->n_tail + n > TAIL_BYTES ? c->n_tail + n - TAIL_BYTES : 0;
    memmove(c->tail, c->tail + over, c->n_tail - over);
    c->n_tail -= over;
    memcpy(c->tail + c->n_tail, bytes, n);
    c->n_tail += n;
}

static void hear(child *c)
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
                td_log(TD_LOG_WARN, "launch", "rank %d: its log cannot be written: %s", c->rank,
                       strerror(errno));
                close(c->file);
                c->file = -1;
                break;
            }
            at += k;
        }
    }
}

static void hear_all(launch *l, struct pollfd *polls)
{
    nfds_t n = 0;
    for (int i = 0; i < l->o->nproc; i++)
        if (l->children[i].out >= 0)
            polls[n++] = (struct pollfd){ .fd = l->children[i].out, .events = POLLIN };
    (void)poll(polls, n, TURN_MS);
    for (int i = 0; i < l->o->nproc; i++)
        if (l->children[i].out >= 0)
            hear(&l->children[i]);
}

static void send_all(const launch *l, int sig)
{
    for (int i = 0; i < l->o->nproc; i++)
        if (l->children[i].pid > 0)
            kill(l->children[i].pid, sig);
}

/* 3 and 4: stopped after saving, below --require; the ranks end alike */
static bool is_quiet(int code)
{
    return code == 3 || code == 4;
}

/* killed, or refused its line: never because of another rank */
static bool is_own_fault(int code)
{
    return code == 2 || code >= 128;
}

/*
 * Is `c` rather the cause than the one that is thought so far?  Who ends in a quiet way is none,
 * and whose fault it was comes before who ended because of it, in the same turn perhaps.
 */
static bool is_cause(const launch *l, const child *c)
{
    const child *first = l->first_failed;
    if (c->code == 0 || c->is_ended)
        return false;
    if (!first)
        return true;
    if (is_quiet(first->code))
        return !is_quiet(c->code);
    return is_own_fault(c->code) && !is_own_fault(first->code) &&
           td_now_ns() - l->failed_ns < TERM_MS * MS;
}

/* whoever ended since */
static void reap(launch *l)
{
    for (int i = 0; i < l->o->nproc; i++) {
        child *c = &l->children[i];
        int how;
        if (c->pid <= 0 || waitpid(c->pid, &how, WNOHANG) != c->pid)
            continue;
        td_log(TD_LOG_DEBUG, "launch", "rank %d has ended", c->rank);
        c->pid = 0;
        c->code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        l->n_living--;
        if (is_cause(l, c)) {
            l->first_failed = c;
            l->failed_ns = td_now_ns();
        }
    }
}

/* by SIGSTOP or a debugger */
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

static void end_stopped(const launch *l)
{
    for (int i = 0; i < l->o->nproc; i++)
        if (l->children[i].pid > 0 && is_stopped(l->children[i].pid)) {
            l->children[i].is_ended = true;
            kill(l->children[i].pid, SIGKILL);
        }
}

static void end_others(launch *l, int *sent)
{
    const int64_t since = (td_now_ns() - l->failed_ns) / MS;
    const bool is_stop = is_quiet(l->first_failed->code);
    if (!is_stop && since >= SEIZE_MS)
        end_stopped(l);
    if (*sent < 1 && since >= (is_stop ? STOP_MS : TERM_MS)) {
        for (int i = 0; i < l->o->nproc; i++)
            l->children[i].is_ended |= l->children[i].pid > 0;
        send_all(l, SIGTERM);
        *sent = 1;
    } else if (*sent < 2 && since >= (is_stop ? STOP_MS + TERM_MS : KILL_MS)) {
        send_all(l, SIGKILL);
        *sent = 2;
    }
}

static td_status watch(launch *l)
{
    int sent = 0;
    struct pollfd *polls = td_alloc((size_t)l->o->nproc, sizeof *polls);
    if (!polls)
        return TD_ENOMEM;
    while (l->n_living > 0) {
        if (td_signal_caught() && !l->was_told) {
            send_all(l, td_signal_caught());
            l->was_told = true;
        }
        hear_all(l, polls);
        reap(l);
        if (l->first_failed)
            end_others(l, &sent);
    }
    hear_all(l, polls);
    td_free(polls);
    return TD_OK;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* the last whole lines that it said */
static void show_tail(const child *c)
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
        fprintf(stderr, "rank %d: %.*s\n", c->rank, (int)n, c->tail + at);
        at += n + 1;
    }
}

static void tell(const launch *l)
{
    const child *c = l->first_failed;
    const child *zero = &l->children[0];
    if (is_quiet(c->code)) /* which it has said itself */
        return;
    if (c != zero && !(c->code == 2 && zero->code == 2)) /* a wrong line is wrong for all */
        show_tail(c);
    if (c->code >= 128)
        td_log(TD_LOG_ERROR, "launch", "rank %d was ended by signal %d (%s)", c->rank,
               c->code - 128, strsignal(c->code - 128));
    else
        td_log(TD_LOG_ERROR, "launch", "rank %d ended with code %d", c->rank, c->code);
}

static void release(launch *l)
{
    for (int i = 0; l->children && i < l->o->nproc; i++) {
        if (l->children[i].out >= 0)
            close(l->children[i].out);
        if (l->children[i].file >= 0)
            close(l->children[i].file);
    }
    if (l->listener >= 0)
        close(l->listener);
    td_free(l->children);
    td_free(l);
}

td_status td_ranks_run(const td_ranks_opts *opts, int n_args, const char *const *args, int *code)
{
    td_status st = TD_OK;
    *code = 0;
    TD_TRY(td_log_configure(opts->log));
    TD_TRY(check(opts));
    launch *l = TD_NEW(launch);
    if (!l)
        return TD_ENOMEM;
    *l = (launch){ .o = opts,
                   .n_args = n_args,
                   .args = args,
                   .size = opts->nnodes * opts->nproc,
                   .listener = -1 };
    l->children = td_alloc((size_t)opts->nproc, sizeof *l->children);
    TD_OUT(l->children ? TD_OK : TD_ENOMEM);
    for (int i = 0; i < opts->nproc; i++)
        l->children[i].out = l->children[i].file = -1;
    if (opts->log_dir)
        TD_OUT(td_make_folder(opts->log_dir));
    TD_OUT(choose_affinity(l));
    TD_OUT(open_listener(l));
    TD_OUT(choose_token(l));
    td_signals_catch();
    for (int i = 0; st == TD_OK && i < opts->nproc; i++)
        st = start_one(l, i);
    if (st != TD_OK) {
        send_all(l, SIGKILL);
        goto out;
    }
    if (l->listener >= 0) { /* rank 0's alone from here on */
        close(l->listener);
        l->listener = -1;
    }
    TD_OUT(watch(l));
    if (l->first_failed) {
        *code = l->first_failed->code;
        tell(l);
    }
out:
    release(l);
    return st;
}
