/*
 * hosts.c -- `tandem launch --hosts`: the mpirun of Open MPI or MPICH starts the ranks
 *
 * The two have different options.  mpirun replaces this process, so that signals and the exit code
 * are its own; only with --restarts it is a child.
 */
#include "launch/hosts.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "launch/mpirun_watch.h"
#include "launch/restarts.h"
#include "transport/mpi_plugin.h"
#include "transport/rank_env.h"
#include "transport/restart.h"

enum {
    FILE_MAX = 1 << 20,
    RANKS_MAX = 4096,
    TRIES = 32, /* machines tried at a time, and for how long */
    TRY_S = 20,
    TRY_TURN_MS = 10
};

typedef struct {
    const char **words; /* [cap], the last one NULL */
    size_t n, cap;
} command;

/* --- the list --------------------------------------------------------------------------------- */

static bool is_slots(const char *text, size_t n, int *out)
{
    int64_t slots;
    char count[16];
    snprintf(count, sizeof count, "%.*s", (int)(n < sizeof count ? n : sizeof count - 1), text);
    if (!td_text_to_int(count, &slots) || slots < 1 || slots > 1024)
        return false;
    *out = (int)slots;
    return true;
}

static td_status add_host(td_hosts *h, const char *word, size_t n, const char *from)
{
    const char *colon = memchr(word, ':', n);
    const bool has_slots = colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - word));
    const size_t len = has_slots ? (size_t)(colon - word) : n;
    int slots = 0;
    if (len == 0 || len >= sizeof h->at->name || word[0] == '-')
        return td_error(TD_EUSAGE, "%s: '%.*s' is not a valid host name", from,
                        (int)(n < 99 ? n : 99), word);
    if (has_slots && !is_slots(colon + 1, n - len - 1, &slots))
        return td_error(TD_EUSAGE, "%s: '%.*s' has '%.*s' ranks, wanted 1 .. 1024", from, (int)len,
                        word, (int)(n - len - 1 < 99 ? n - len - 1 : 99), colon + 1);
    td_host *at = td_resize(h->at, (size_t)h->n + 1, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    h->at = at;
    at[h->n] = (td_host){ .slots = slots };
    memcpy(at[h->n].name, word, len);
    h->n++;
    return TD_OK;
}

/* Parse a line "name", "name:4" or "name slots=4". */
static td_status add_line(td_hosts *h, const char *line, size_t n, const char *from)
{
    static const char key[] = "slots=";
    const size_t n_key = sizeof key - 1;
    size_t at = 0, words = 0;
    while (at < n) {
        size_t len = 0;
        while (at < n && isspace((unsigned char)line[at]))
            at++;
        while (at + len < n && !isspace((unsigned char)line[at + len]))
            len++;
        if (len == 0)
            break;
        if (words == 0) {
            TD_TRY(add_host(h, line + at, len, from));
        } else {
            int *slots = &h->at[h->n - 1].slots;
            if (words > 1 || len < n_key || strncmp(line + at, key, n_key) != 0 ||
                !is_slots(line + at + n_key, len - n_key, slots))
                return td_error(TD_EUSAGE,
                                "%s: '%.*s' after machine '%s', wanted slots=N, 1 .. 1024", from,
                                (int)(len < 99 ? len : 99), line + at, h->at[h->n - 1].name);
        }
        words++;
        at += len;
    }
    return TD_OK;
}

td_status td_hosts_parse(const char *text, bool is_file, const char *from, td_hosts *out)
{
    td_hosts h = { 0 };
    td_status st = TD_OK;
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, is_file ? "\n" : ",");
        if (is_file) {
            const char *comment = memchr(s, '#', n);
            TD_OUT(add_line(&h, s, comment ? (size_t)(comment - s) : n, from));
        } else {
            TD_OUT(add_host(&h, s, n, from));
        }
        s += n + (s[n] != 0);
    }
    if (h.n == 0)
        TD_OUT(td_error(TD_EUSAGE, "%s names no machine", from));
    if (h.n > 4096)
        TD_OUT(td_error(TD_EUSAGE, "%s names %d machines, wanted at most 4096", from, h.n));
    *out = h;
    return TD_OK;
out:
    td_free(h.at);
    return st;
}

static td_status read_hosts(const td_ranks_opts *o, td_hosts *out)
{
    char *text = NULL;
    size_t n;
    if (o->hosts)
        return td_hosts_parse(o->hosts, false, "--hosts", out);
    TD_TRY(td_file_read(o->hostfile, FILE_MAX, &text, &n));
    char from[128];
    snprintf(from, sizeof from, "'%.120s'", o->hostfile);
    td_status st = strlen(text) == n ? td_hosts_parse(text, true, from, out)
                                     : td_error(TD_EUSAGE, "%s is not text", from);
    td_free(text);
    return st;
}

/* --- the mpirun that is installed ------------------------------------------------------------- */

typedef enum { OPEN_MPI, MPICH } mpi_kind;

typedef struct {
    char program[PATH_MAX];
    mpi_kind kind;
} mpirun;

/* what `PROGRAM --version` prints, at most `room` bytes; false: it cannot be run */
static bool ask_version(const char *program, char *out, size_t room)
{
    int fds[2], how;
    size_t n = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        const int none = open("/dev/null", O_RDWR);
        if (none >= 0 && dup2(none, 0) == 0 && dup2(none, 2) == 2 && dup2(fds[1], 1) == 1)
            execl(program, program, "--version", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t got = 1; pid > 0 && got > 0 && n + 1 < room; n += (size_t)(got > 0 ? got : 0))
        got = read(fds[0], out + n, room - 1 - n);
    out[n] = '\0';
    close(fds[0]);
    return pid > 0 && waitpid(pid, &how, 0) == pid && n > 0;
}

/* the full path of a program: PATH is searched unless `name` has a slash */
static bool find_program(const char *name, char out[PATH_MAX])
{
    const char *dir = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(out, PATH_MAX, "%s", name);
        return access(out, X_OK) == 0;
    }
    while (dir && *dir) {
        const size_t n = strcspn(dir, ":");
        const int len = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, dir, name);
        if (n > 0 && len < PATH_MAX && access(out, X_OK) == 0)
            return true;
        dir += n + (dir[n] == ':');
    }
    return false;
}

static bool is_mpirun(const char *name, mpirun *out)
{
    char text[4096];
    if (!find_program(name, out->program) || !ask_version(out->program, text, sizeof text))
        return false;
    out->kind = strstr(text, "Open MPI") || strstr(text, "OpenRTE") ? OPEN_MPI : MPICH;
    return out->kind == OPEN_MPI || strstr(text, "HYDRA") || strstr(text, "Intel(R) MPI");
}

/* the first whose plug-in is installed, too */
static td_status find_mpirun(const char *given, mpirun *out)
{
    static const char *const names[] = { "mpirun", "mpirun.openmpi", "mpirun.mpich",
                                         "mpiexec.hydra" };
    char seen[PATH_MAX] = "";
    if (given && !is_mpirun(given, out))
        return td_error(TD_EUSAGE, "--mpirun: '%s' is not the mpirun of Open MPI or MPICH", given);
    if (given)
        return TD_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!is_mpirun(names[i], out))
            continue;
        if (td_mpi_is_installed(out->kind == OPEN_MPI ? TD_RANKS_OPENMPI : TD_RANKS_MPICH))
            return TD_OK;
        snprintf(seen, sizeof seen, "%s", out->program);
    }
    if (*seen)
        return td_error(TD_ENOTFOUND,
                        "'%s' was found, but not the plug-in for its MPI: build with its headers "
                        "installed (scripts/setup --mpi)",
                        seen);
    return td_error(TD_ENOTFOUND,
                    "--hosts requires Open MPI or MPICH: neither mpirun nor mpiexec.hydra was "
                    "found; on Debian, install openmpi-bin");
}

/* --- its command line ------------------------------------------------------------------------- */

static void add(command *c, const char *word)
{
    if (c->n + 1 < c->cap)
        c->words[c->n++] = word;
}

static int slots_of(const td_host *h, int nproc)
{
    return h->slots ? h->slots : nproc;
}

static td_status check_hosts(const td_hosts *h, int nproc, int *n_ranks)
{
    *n_ranks = 0;
    for (int i = 0; i < h->n; i++) {
        if (h->at[i].slots && nproc != 1 && nproc != h->at[i].slots)
            return td_error(TD_EUSAGE, "machine '%s' has %d ranks, but --nproc is %d",
                            h->at[i].name, h->at[i].slots, nproc);
        *n_ranks += slots_of(&h->at[i], nproc);
    }
    if (*n_ranks > RANKS_MAX)
        return td_error(TD_EUSAGE, "%d ranks, wanted at most %d", *n_ranks, RANKS_MAX);
    return TD_OK;
}

/* "a:2,b:2" */
static td_status list_hosts(const td_hosts *h, int nproc, td_text *out)
{
    for (int i = 0; i < h->n; i++)
        td_text_add(out, "%s%s:%d", i ? "," : "", h->at[i].name, slots_of(&h->at[i], nproc));
    return td_text_status(out);
}

/* the user's settings of the program and its threads, by name */
static bool is_setting(const char *variable)
{
    return td_text_starts(variable, "TANDEM_") || td_text_starts(variable, "OMP_");
}

/* "A" and "B", or "A,B": pointers into `names` */
static td_status list_settings(bool is_one_word, td_text *names)
{
    extern char **environ;
    for (char **e = environ; *e; e++) {
        const size_t n = strcspn(*e, "=");
        if (!is_setting(*e))
            continue;
        td_text_add(names, is_one_word && td_text_get(names)[0] ? "," : "");
        td_text_add_bytes(names, *e, n);
        if (!is_one_word)
            td_text_add_bytes(names, "", 1); /* ends the word */
    }
    return td_text_status(names);
}

static void add_settings(command *c, mpi_kind kind, const td_text *names)
{
    if (kind == MPICH && names->len) {
        add(c, "-genvlist");
        add(c, td_text_get(names));
    }
    for (size_t at = 0; kind == OPEN_MPI && at < names->len; at += strlen(names->data + at) + 1) {
        add(c, "-x");
        add(c, names->data + at);
    }
}

static void add_places(command *c, mpi_kind kind, const char *hosts, const char *count,
                       const char *folder)
{
    const char *const open_mpi[] = { "-np",  count,       "--host", hosts,    "--map-by",
                                     "slot", "--bind-to", "none",   "--wdir", folder };
    const char *const mpich[] = {
        "-n", count, "-hosts", hosts, "-bind-to", "none", "-wdir", folder
    };
    if (kind == OPEN_MPI)
        for (size_t i = 0; i < sizeof open_mpi / sizeof *open_mpi; i++)
            add(c, open_mpi[i]);
    else
        for (size_t i = 0; i < sizeof mpich / sizeof *mpich; i++)
            add(c, mpich[i]);
}

/* mpirun binds nothing; the ranks bind themselves */
static td_status pass_affinity(td_affinity mode)
{
    td_text name = { 0 };
    if (mode == TD_AFFINITY_AUTO)
        return TD_OK;
    td_affinity_name(mode, &name);
    td_status st = td_text_status(&name);
    if (st == TD_OK && setenv(TD_ENV_AFFINITY_WANTED, td_text_get(&name), 1) != 0)
        st = td_error_errno(TD_ENOMEM, "cannot set %s", TD_ENV_AFFINITY_WANTED);
    td_text_release(&name);
    return st;
}

/* all that the command line is made of */
typedef struct {
    const td_ranks_opts *o;
    int n_args;
    const char *const *args;
    td_hosts hosts; /* those that can be reached, as far as known */
    mpirun mpi;
    char program[PATH_MAX], folder[PATH_MAX];
    bool is_tried; /* before the first start */
} launch;

static td_status find_here(launch *l)
{
    const ssize_t n = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    if (n <= 0 || !getcwd(l->folder, sizeof l->folder))
        return td_error_errno(TD_EIO, "cannot find the path of this program or the working folder");
    l->program[n] = '\0';
    return TD_OK;
}

/* Become mpirun; returns only after a failure. */
static td_status become_mpirun(const launch *l, int ranks)
{
    td_status st = TD_OK;
    td_text list = { 0 }, settings = { 0 };
    command c = { 0 };
    char count[16];
    TD_OUT(list_hosts(&l->hosts, l->o->nproc, &list));
    TD_OUT(list_settings(l->mpi.kind == MPICH, &settings));
    snprintf(count, sizeof count, "%d", ranks);
    c.cap = (size_t)l->n_args + settings.len + 32; /* a setting has more bytes than words */
    c.words = td_alloc(c.cap, sizeof *c.words);
    TD_OUT(c.words ? TD_OK : TD_ENOMEM);
    add(&c, l->mpi.program);
    add_places(&c, l->mpi.kind, td_text_get(&list), count, l->folder);
    add_settings(&c, l->mpi.kind, &settings);
    add(&c, l->program);
    for (int i = 0; i < l->n_args; i++)
        add(&c, l->args[i]);
    td_log(TD_LOG_INFO, "launch", "%d ranks on %d machines by '%s'", ranks, l->hosts.n,
           l->mpi.program);
    (void)fflush(NULL);
    execv(l->mpi.program, (char *const *)(uintptr_t)c.words);
    st = td_error_errno(TD_EIO, "cannot start '%s'", l->mpi.program);
out:
    td_text_release(&settings);
    td_text_release(&list);
    td_free(c.words);
    return st;
}

/* without --restarts; returns only after a failure */
static td_status become_watched_mpirun(const launch *l, int ranks)
{
    if (td_mpirun_watch() != TD_OK) {
        td_log(TD_LOG_WARN, "launch", "if a machine is lost, mpirun may wait for it: %s",
               td_error_message());
        td_error_clear();
    }
    return become_mpirun(l, ranks);
}

/* --- machines that can be reached ------------------------------------------------------------- */

/* in a new session: ssh must not ask for a password */
static _Noreturn void try_host(const launch *l, const td_host *h)
{
    char place[sizeof h->name + 4];
    snprintf(place, sizeof place, "%s:1", h->name);
    const char *words[32];
    command c = { .words = words, .cap = sizeof words / sizeof *words };
    const int none = open("/dev/null", O_RDWR);
    if (setsid() < 0 || none < 0 || dup2(none, 0) < 0 || dup2(none, 1) < 0 || dup2(none, 2) < 0)
        _exit(127);
    add(&c, l->mpi.program);
    add_places(&c, l->mpi.kind, place, "1", l->folder);
    add(&c, l->program);
    add(&c, "--version");
    words[c.n] = NULL;
    execv(l->mpi.program, (char *const *)(uintptr_t)words);
    _exit(127);
}

/* does a process that was started by try_host end with success?  Kills what takes too long. */
static bool has_succeeded(pid_t pid, int64_t until)
{
    int how = -1;
    pid_t ended = 0;
    while (pid > 0 && (ended = waitpid(pid, &how, WNOHANG)) == 0 && td_now_ns() < until &&
           !td_signal_caught())
        (void)poll(NULL, 0, TRY_TURN_MS);
    if (pid > 0 && ended == 0) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL); /* it may not have its session yet */
        (void)waitpid(pid, &how, 0);
        return false;
    }
    return ended == pid && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

/*
 * Start a process on each machine, TRIES at a time, and sort those where it fails to the end of the
 * list.  Messages of mpirun would not do: MPICH's waits without an end for a machine that is not
 * there.  Returns how many succeed.
 */
static int try_hosts(const launch *l)
{
    int n_good = 0;
    for (int from = 0; from < l->hosts.n; from += TRIES) {
        pid_t pids[TRIES];
        const int n = l->hosts.n - from < TRIES ? l->hosts.n - from : TRIES;
        const int64_t until = td_now_ns() + TRY_S * INT64_C(1000000000);
        for (int i = 0; i < n; i++) {
            pids[i] = fork();
            if (pids[i] == 0)
                try_host(l, &l->hosts.at[from + i]);
        }
        for (int i = 0; i < n; i++)
            if (has_succeeded(pids[i], until)) {
                const td_host good = l->hosts.at[from + i];
                memmove(&l->hosts.at[n_good + 1], &l->hosts.at[n_good],
                        (size_t)(from + i - n_good) * sizeof good);
                l->hosts.at[n_good++] = good;
            }
    }
    return n_good;
}

/*
 * Remove the machines that cannot be reached, and describe them in *out.  With one machine, or if
 * none can be reached, the fault is not a machine's, and nothing is removed.
 */
static void drop_hosts(launch *l, td_attempt *out)
{
    const int n = l->hosts.n;
    const int n_good = n > 1 ? try_hosts(l) : n;
    if (n_good == n || td_signal_caught())
        return;
    if (n_good == 0) {
        snprintf(out->cause, sizeof out->cause,
                 "mpirun cannot start a process on any of the %d machines", n);
        out->is_lost = false;
        out->code = out->code ? out->code : 1;
        return;
    }
    snprintf(out->cause, sizeof out->cause, "machine '%s'%s cannot be reached",
             l->hosts.at[n_good].name, n - n_good > 1 ? " and others" : "");
    l->hosts.n = n_good;
    out->is_lost = true;
    out->code = out->code ? out->code : 1;
    int n_slots = 0;
    for (int i = 0; i < n_good; i++)
        n_slots += slots_of(&l->hosts.at[i], l->o->nproc);
    out->n_left = n_slots < out->n_left ? n_slots : out->n_left;
}

/* --- mpirun as a child ------------------------------------------------------------------------ */

/* in the new process */
static _Noreturn void be_mpirun(const launch *l, int ranks)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* it ends the ranks */
    if (become_mpirun(l, ranks) != TD_OK)
        fprintf(stderr, "tandem: error: %s\n", td_error_message());
    _exit(1);
}

/* 128 + signal, as a shell has it; MPICH's mpirun exits with the signal that killed a rank */
static int shell_code(mpi_kind kind, int code)
{
    static const int signals[] = { SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM };
    for (size_t i = 0; kind == MPICH && i < sizeof signals / sizeof *signals; i++)
        if (code == signals[i])
            return 128 + code;
    return code;
}

/* the exit code of a run that a signal has stopped is rank 0's: mpirun's own differs at times */
static void judge_stop(td_attempt *out)
{
    if (!td_restart_has(TD_RESTART_STOP))
        return;
    out->code = TD_EXIT_STOPPED;
    *out->cause = '\0';
}

static void judge(launch *l, const td_children *c, td_attempt *out)
{
    const int code = c->is_forced ? TD_EXIT_LOST : shell_code(l->mpi.kind, out->code);
    const bool is_own = code == 0 || code == 2 || td_child_is_quiet(code); /* of the run */
    if (td_signal_caught())
        judge_stop(out);
    if (is_own || td_signal_caught())
        return;
    out->is_lost = code >= 128 || code == TD_EXIT_LOST;
    out->code = code == TD_EXIT_LOST ? 1 : code;
    if (out->is_lost && code == TD_EXIT_LOST)
        snprintf(out->cause, sizeof out->cause, "a rank was lost");
    else if (out->is_lost && !c->at[0].by_signal)
        snprintf(out->cause, sizeof out->cause, "a rank was killed by signal %d (%s)", code - 128,
                 strsignal(code - 128));
    else if (!out->is_lost && l->hosts.n > 1)
        snprintf(out->cause, sizeof out->cause,
                 "mpirun exited with code %d, and all %d machines can be reached; no restart", code,
                 l->hosts.n);
    drop_hosts(l, out);
}

static bool has_loss(void)
{
    return td_restart_has(TD_RESTART_LOSS);
}

/* a td_attempt_run */
static td_status run_once(void *ctx, int ranks, td_attempt *out)
{
    launch *l = ctx;
    td_status st = TD_OK;
    td_children c;
    bool is_child;
    if (!l->is_tried) {
        l->is_tried = true;
        drop_hosts(l, out);
        if (out->code)
            return TD_OK;
    }
    TD_TRY(td_children_make(1, &c));
    snprintf(c.at[0].name, sizeof c.at[0].name, "mpirun");
    /* every mpirun passes this one on, and waits: Open MPI's kills ranks 1 s after another one */
    c.stop_signal = SIGUSR1;
    c.is_over = has_loss; /* Open MPI's waits for machines that it cannot reach */
    TD_OUT(td_child_fork(&c, 0, false, &is_child));
    if (is_child)
        be_mpirun(l, ranks);
    TD_OUT(td_children_watch(&c));
    out->code = td_children_tell(&c, false, out->cause);
    judge(l, &c, out);
out:
    td_children_release(&c);
    return st;
}

td_status td_hosts_run(const td_ranks_opts *opts, int n_args, const char *const *args, int *code)
{
    td_status st = TD_OK;
    int n_ranks;
    if (opts->log_dir)
        return td_error(TD_EUSAGE, "--log-dir and --hosts exclude each other: mpirun has options "
                                   "for the output of ranks");
    launch *l = TD_NEW(launch);
    if (!l)
        return TD_ENOMEM;
    *l = (launch){ .o = opts, .n_args = n_args, .args = args };
    TD_OUT(find_here(l));
    TD_OUT(read_hosts(opts, &l->hosts));
    TD_OUT(check_hosts(&l->hosts, opts->nproc, &n_ranks));
    TD_OUT(find_mpirun(opts->mpirun, &l->mpi));
    TD_OUT(pass_affinity(opts->cpu_affinity));
    const td_restart_plan plan = { .ranks = n_ranks,
                                   .restarts = opts->restarts,
                                   .min_ranks = opts->min_ranks };
    st = opts->restarts || opts->min_ranks ? td_restarts_run(&plan, run_once, l, code)
                                           : become_watched_mpirun(l, n_ranks);
out:
    td_free(l->hosts.at);
    td_free(l);
    return st;
}
