/*
 * local_ranks.c -- `tandem launch`: starts the ranks of this machine as processes
 *
 *   parent   creates a listening socket for rank 0 and a secret for all
 *        fork -> own process group, processors, RANK WORLD_SIZE ... -> exec this program again
 *     parent   writes the output of other ranks than 0 to files; keeps the last lines for messages
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/signals.h"
#include "base/text.h"
#include "comm/rank_env.h"
#include "launch/hosts.h"
#include "launch/supervisor.h"
#include "options/field.h"
#include "tandem/launch.h"

enum { PORT = 29500 };

/* clang-format off */
static const td_field fields[] = {
    TD_INT_AS (td_ranks_opts, nproc, "nproc", "nproc_per_node|n", 1, 1, 1024, NULL,
               "number of ranks on each machine"),
    TD_INT    (td_ranks_opts, nnodes, 1, 1, 4096, "number of machines"),
    TD_INT    (td_ranks_opts, node_rank, 0, 0, 4095, "index of this machine, from 0"),
    TD_TEXT   (td_ranks_opts, master_addr, NULL, "HOST", "address of the machine of rank 0"),
    TD_INT    (td_ranks_opts, master_port, 0, 0, 65535,
               "port of rank 0; 0: 29500, or a free port if there is only one machine"),
    TD_ENUM_AS(td_ranks_opts, cpu_affinity, "cpu_affinity", "gpu_affinity", TD_AFFINITY_AUTO,
               td_affinity_choices,
               "binding of ranks to processors; auto: socket_unique_contiguous if there are "
               "enough processors"),
    TD_TEXT   (td_ranks_opts, log_dir, NULL, "FOLDER",
               "write the output of all ranks but rank 0 to rank_N.log in this folder"),
    TD_TEXT   (td_ranks_opts, hosts, NULL, "LIST",
               "machines to start ranks on, with --nproc ranks each (a,b) or a given number "
               "(a:2,b:2); the first one runs rank 0"),
    TD_TEXT   (td_ranks_opts, hostfile, NULL, "FILE",
               "file of machines for --hosts, one per line: NAME [slots=N]"),
    TD_TEXT   (td_ranks_opts, ssh, "ssh -o BatchMode=yes", "COMMAND",
               "command that runs a command on another machine"),
    TD_TEXT   (td_ranks_opts, remote_program, NULL, "PATH",
               "path of tandem on the other machines; default: the same path as here"),
    TD_TEXT   (td_ranks_opts, log, NULL, "LEVELS", "log level: error, warn, info or debug"),
    TD_END,
};
/* clang-format on */

const td_field *td_ranks_fields(void)
{
    return fields;
}

typedef struct {
    const td_ranks_opts *o;
    int n_args;
    const char *const *args;
    int size;
    td_children children; /* [nproc] */
    int listener;         /* -1: rank 0 creates its own */
    int blame[2];         /* a pipe on which ranks name the one that failed */
    int port;
    const char *addr;
    char token[65];
    td_affinity affinity;
    td_topology cpus;
} launch;

/* --- before the fork -------------------------------------------------------------------------- */

static td_status check(const td_ranks_opts *o)
{
    if (o->node_rank >= o->nnodes)
        return td_error(TD_EUSAGE, "--node-rank: %d of %d machines, wanted 0 .. %d", o->node_rank,
                        o->nnodes, o->nnodes - 1);
    if (o->nnodes > 1 && !o->master_addr)
        return td_error(TD_EUSAGE,
                        "--nnodes %d requires --master-addr, the address of the first machine",
                        o->nnodes);
    if ((int64_t)o->nnodes * o->nproc > 4096)
        return td_error(TD_EUSAGE, "%d ranks on each of %d machines: wanted at most 4096 in all",
                        o->nproc, o->nnodes);
    return TD_OK;
}

/* Open the socket that rank 0 inherits on a single machine: no other process can take its port. */
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
        return td_error_errno(TD_EIO, "--master-port: cannot listen on port %d", l->o->master_port);
    l->port = ntohs(at.sin_port);
    return TD_OK;
}

td_status td_launch_token(char out[65])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_errno(TD_EIO, "cannot read random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return TD_OK;
}

/* Read the secret, the first line from the launch that started this one. */
static td_status hear_token(launch *l)
{
    size_t n = 0;
    char c;
    while (n + 1 < sizeof l->token && read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
        l->token[n++] = c;
    l->token[n] = 0;
    unsetenv(TD_ENV_LIFELINE);
    l->children.lifeline = STDIN_FILENO;
    return n ? TD_OK
             : td_error(TD_EIO, "stdin contains no secret: " TD_ENV_LIFELINE " requires --hosts");
}

/*
 * Set the secret: generated on a single machine; for several, the user sets it in each environment.
 */
static td_status choose_token(launch *l)
{
    if (getenv(TD_ENV_LIFELINE))
        return hear_token(l);
    if (l->o->nnodes == 1)
        return td_launch_token(l->token);
    const char *given = getenv(TD_ENV_TOKEN);
    snprintf(l->token, sizeof l->token, "%s", given ? given : "");
    return TD_OK;
}

static td_status choose_affinity(launch *l)
{
    int cpus[TD_CPUS_MAX], n;
    TD_TRY(td_topology_here(&l->cpus));
    const bool is_auto = l->o->cpu_affinity == TD_AFFINITY_AUTO;
    l->affinity = is_auto ? TD_AFFINITY_CONTIGUOUS : l->o->cpu_affinity;
    if (l->o->nproc == 1 && is_auto)
        l->affinity = TD_AFFINITY_NONE;
    for (int i = 0; i < l->o->nproc; i++) {
        td_status st = td_affinity_choose(&l->cpus, l->affinity, i, l->o->nproc, cpus, &n);
        if (st == TD_OK)
            continue;
        if (!is_auto)
            return st;
        td_log(TD_LOG_WARN, "launch", "%d ranks share %d processors", l->o->nproc, l->cpus.n);
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

static void set_environment(const launch *l, int rank, int local)
{
    set_number("RANK", rank);
    set_number("WORLD_SIZE", l->size);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", l->o->nproc);
    set_number("MASTER_PORT", l->port);
    setenv("MASTER_ADDR", l->addr, 1);
    setenv(TD_ENV_TOKEN, l->token, 1);
    unsetenv(TD_ENV_LISTEN_FD);
    if (rank == 0 && l->listener >= 0) {
        (void)fcntl(l->listener, F_SETFD, 0);
        set_number(TD_ENV_LISTEN_FD, l->listener);
    }
    (void)fcntl(l->blame[1], F_SETFD, 0);
    set_number(TD_ENV_CULPRIT_FD, l->blame[1]);
    setenv("TANDEM_AFFINITY", td_affinity_choices[l->affinity], 1);
    if (l->o->log_dir)
        setenv("TANDEM_RANK_LOGS", "1", 1);
}

static _Noreturn void be_rank(const launch *l, int rank, int local)
{
    static const char *const exe = "/proc/self/exe";
    int cpus[TD_CPUS_MAX], n;
    char **argv = td_alloc((size_t)l->n_args + 2, sizeof *argv);
    if (!argv)
        _exit(1);
    if (rank == 0 && l->o->result_fd > 0 && dup2(l->o->result_fd, 1) < 0)
        _exit(1);
    set_environment(l, rank, local);
    if (td_affinity_choose(&l->cpus, l->affinity, local, l->o->nproc, cpus, &n) != TD_OK ||
        td_affinity_apply(cpus, n) != TD_OK)
        fprintf(stderr, "tandem: warning: %s\n", td_error_message());
    argv[0] = (char *)(uintptr_t) "tandem";
    for (int i = 0; i < l->n_args; i++)
        argv[1 + i] = (char *)(uintptr_t)l->args[i];
    execv(exe, argv);
    fprintf(stderr, "tandem: error: cannot start '%s' again: %s\n", exe, strerror(errno));
    _exit(1);
}

/* --- starting --------------------------------------------------------------------------------- */

static td_status open_log(const launch *l, int rank, td_child *c)
{
    char name[32];
    snprintf(name, sizeof name, "rank_%d.log", rank);
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
    td_child *c = &l->children.at[local];
    const int rank = td_rank_of(l->o->node_rank, l->o->nproc, local);
    bool is_child;
    snprintf(c->name, sizeof c->name, "rank %d", rank);
    if (rank > 0 && l->o->log_dir)
        TD_TRY(open_log(l, rank, c));
    /* the first rank of each machine writes to the terminal, unless to a log file */
    const td_child_ways ways = { .is_heard = local > 0 || c->file >= 0 };
    TD_TRY(td_child_fork(&l->children, local, ways, &is_child));
    if (is_child)
        be_rank(l, rank, local);
    return TD_OK;
}

/* --- the launch ------------------------------------------------------------------------------- */

static void release(launch *l)
{
    td_children_release(&l->children);
    if (l->listener >= 0)
        close(l->listener);
    for (int i = 0; i < 2; i++)
        if (l->blame[i] >= 0)
            close(l->blame[i]);
    td_free(l);
}

static td_status open_blame(launch *l)
{
    if (pipe2(l->blame, O_CLOEXEC | O_NONBLOCK) == 0)
        return TD_OK;
    l->blame[0] = l->blame[1] = -1;
    return td_error_errno(TD_EIO, "no pipe");
}

/* The first rank that other ranks blamed, if it runs on this machine. */
static td_child *read_blame(const launch *l)
{
    int rank;
    if (read(l->blame[0], &rank, sizeof rank) != (ssize_t)sizeof rank)
        return NULL;
    rank -= td_rank_of(l->o->node_rank, l->o->nproc, 0);
    return rank >= 0 && rank < l->children.n ? &l->children.at[rank] : NULL;
}

/*
 * Must the output of the cause be printed?  Rank 0's output is already on the terminal, and a usage
 * error of all ranks, too.
 */
static bool is_shown(const td_children *c)
{
    const td_child *cause = td_children_cause(c), *zero = &c->at[0];
    return cause && cause != zero && !(cause->code == 2 && zero->code == 2);
}

td_status td_ranks_run(const td_ranks_opts *opts, int n_args, const char *const *args, int *code)
{
    td_status st = TD_OK;
    *code = 0;
    TD_TRY(td_log_configure(opts->log));
    if (opts->hosts && opts->hostfile)
        return td_error(TD_EUSAGE, "--hosts and --hostfile exclude each other");
    if (opts->hosts || opts->hostfile)
        return td_hosts_run(opts, n_args, args, code);
    TD_TRY(check(opts));
    launch *l = TD_NEW(launch);
    if (!l)
        return TD_ENOMEM;
    *l = (launch){ .o = opts,
                   .n_args = n_args,
                   .args = args,
                   .size = opts->nnodes * opts->nproc,
                   .listener = -1,
                   .blame = { -1, -1 } };
    TD_OUT(td_children_make(opts->nproc, &l->children));
    if (opts->log_dir)
        TD_OUT(td_make_folder(opts->log_dir));
    TD_OUT(choose_affinity(l));
    TD_OUT(open_blame(l));
    TD_OUT(open_listener(l));
    TD_OUT(choose_token(l));
    td_signals_catch();
    for (int i = 0; st == TD_OK && i < opts->nproc; i++)
        st = start_one(l, i);
    if (st != TD_OK) {
        td_children_signal(&l->children, SIGKILL);
        goto out;
    }
    if (l->listener >= 0) { /* only rank 0 uses it from now on */
        close(l->listener);
        l->listener = -1;
    }
    TD_OUT(td_children_watch(&l->children));
    l->children.blamed = read_blame(l);
    *code = td_children_tell(&l->children, is_shown(&l->children));
out:
    release(l);
    return st;
}
