/*
 * local_ranks.c -- `tandem launch`: starts the ranks of this machine as processes
 *
 *   parent   a socket pair for each pair of ranks
 *        fork -> own process group, processors, RANK WORLD_SIZE ... -> exec this program again
 *     parent   writes the output of other ranks than 0 to files; keeps the last lines for messages
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/text.h"
#include "launch/hosts.h"
#include "launch/restarts.h"
#include "launch/supervisor.h"
#include "options/field.h"
#include "tandem/launch.h"
#include "transport/local_links.h"
#include "transport/rank_env.h"

/* clang-format off */
static const td_field fields[] = {
    TD_INT_AS (td_ranks_opts, nproc, "nproc", "nproc_per_node|n", 1, 1, 1024, NULL,
               "number of ranks on each machine"),
    TD_ENUM_AS(td_ranks_opts, cpu_affinity, "cpu_affinity", "gpu_affinity", TD_AFFINITY_AUTO,
               td_affinity_choices,
               "binding of ranks to processors; auto: numa if there are several NUMA nodes whose "
               "number divides that of the ranks, otherwise socket_unique_contiguous if there are "
               "enough processors"),
    TD_TEXT   (td_ranks_opts, log_dir, NULL, "FOLDER",
               "write the output of all ranks but rank 0 to rank_N.log in this folder"),
    TD_TEXT   (td_ranks_opts, hosts, NULL, "LIST",
               "machines to start ranks on by mpirun, with --nproc ranks each (a,b) or a given "
               "number (a:2,b:2)"),
    TD_TEXT   (td_ranks_opts, hostfile, NULL, "FILE",
               "file of machines for --hosts, one per line: NAME [slots=N]"),
    TD_TEXT   (td_ranks_opts, mpirun, NULL, "PATH",
               "mpirun of Open MPI or MPICH for --hosts; default: the one in PATH"),
    TD_INT    (td_ranks_opts, restarts, 0, 0, 1000,
               "start the ranks again, at most this many times, after a rank was killed or stopped "
               "responding or a machine was lost; a training resumes from its last checkpoint"),
    TD_INT    (td_ranks_opts, min_ranks, 0, 0, 4096,
               "fewest ranks of a restart: without a killed rank or a lost machine, if at least so "
               "many remain; 0: always as many as at the start"),
    TD_INT    (td_ranks_opts, nnodes, 1, 1, 4096,
               "refused above 1; use --hosts, mpirun or srun"),
    TD_INT    (td_ranks_opts, node_rank, 0, 0, 4095, "refused, as --nnodes"),
    TD_TEXT   (td_ranks_opts, master_addr, NULL, "HOST", "refused, as --nnodes"),
    TD_INT    (td_ranks_opts, master_port, 0, 0, 65535, "refused, as --nnodes"),
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
    td_children children; /* [nproc] */
    td_local_links links;
    int blame[2]; /* a pipe on which ranks name the one that failed */
    td_affinity affinity;
    td_topology cpus;
    td_binding binding; /* of the rank that is being started */
    bool is_restart;    /* log files are continued */
} launch;

/* the launch with all its restarts */
typedef struct {
    const td_ranks_opts *o;
    int n_args;
    const char *const *args;
    int n_starts;
} job;

/* --- before the fork -------------------------------------------------------------------------- */

/* ranks on several machines are MPI's: the lines that start them */
static td_status refuse_nodes(const td_ranks_opts *o)
{
    const char *given = o->nnodes > 1      ? "--nnodes"
                        : o->node_rank > 0 ? "--node-rank"
                        : o->master_addr   ? "--master-addr"
                        : o->master_port   ? "--master-port"
                                           : NULL;
    if (!given)
        return TD_OK;
    return td_error(
        TD_EUSAGE,
        "%s: MPI starts ranks on several machines: 'mpirun -np %lld --bind-to none "
        "tandem VERB ...', 'srun -N %d --ntasks-per-node %d --mpi=pmix tandem VERB ...' or "
        "'tandem launch --hosts LIST --nproc %d VERB ...'",
        given, (long long)o->nnodes * o->nproc, o->nnodes, o->nproc, o->nproc);
}

static td_status choose_affinity(launch *l)
{
    const td_affinity wanted = l->o->cpu_affinity;
    TD_TRY(td_topology_here(&l->cpus));
    TD_TRY(td_affinity_resolve(&l->cpus, wanted, l->o->nproc, &l->affinity));
    if (wanted == TD_AFFINITY_AUTO && l->affinity == TD_AFFINITY_NONE && l->o->nproc > 1)
        td_log(TD_LOG_WARN, "launch", "%d ranks share %d processors", l->o->nproc, l->cpus.n);
    td_status st = l->affinity == TD_AFFINITY_NONE ? TD_OK : td_topology_require_here(&l->cpus);
    if (st != TD_OK && wanted != TD_AFFINITY_AUTO)
        return td_error_context(st, "--cpu-affinity");
    if (st != TD_OK) {
        td_log(TD_LOG_WARN, "launch", "ranks are not bound: %s", td_error_message());
        td_error_clear();
        l->affinity = TD_AFFINITY_NONE;
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

static void set_environment(const launch *l, int rank)
{
    set_number("RANK", rank);
    set_number("WORLD_SIZE", l->o->nproc);
    set_number("LOCAL_RANK", rank);
    set_number("LOCAL_WORLD_SIZE", l->o->nproc);
    (void)fcntl(l->blame[1], F_SETFD, 0);
    set_number(TD_ENV_CULPRIT_FD, l->blame[1]);
    setenv(TD_ENV_AFFINITY_DONE, td_affinity_choices[l->affinity], 1);
    if (l->o->shares_batch)
        setenv(TD_ENV_SHARED_BATCH, "1", 1);
    if (l->o->log_dir)
        setenv("TANDEM_RANK_LOGS", "1", 1);
}

static _Noreturn void be_rank(launch *l, int rank)
{
    static const char *const exe = "/proc/self/exe";
    char **argv = td_alloc((size_t)l->n_args + 2, sizeof *argv);
    if (!argv)
        _exit(1);
    if (rank == 0 && l->o->result_fd > 0 && dup2(l->o->result_fd, 1) < 0)
        _exit(1);
    set_environment(l, rank);
    if (td_local_links_pass(&l->links, rank) != TD_OK)
        _exit(1);
    if (l->affinity != TD_AFFINITY_NONE && td_topology_bind(&l->cpus, &l->binding) != TD_OK)
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
    c->file =
        open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (l->is_restart ? O_APPEND : O_TRUNC), 0666);
    td_status st = c->file < 0 ? td_error_errno(TD_EIO, "cannot write '%s'", path) : TD_OK;
    td_free(path);
    return st;
}

static td_status choose_processors(launch *l, int rank)
{
    char list[TD_CPU_LIST_BYTES];
    if (l->affinity == TD_AFFINITY_NONE)
        return TD_OK;
    TD_TRY(td_affinity_choose(&l->cpus, l->affinity, rank, l->o->nproc, &l->binding));
    td_binding_list(&l->binding, list);
    td_log(TD_LOG_DEBUG, "launch", "rank %d: processors %s%s", rank, list,
           l->binding.binds_memory ? ", memory of their NUMA node" : "");
    return TD_OK;
}

static td_status start_one(launch *l, int rank)
{
    td_child *c = &l->children.at[rank];
    bool is_child;
    snprintf(c->name, sizeof c->name, "rank %d", rank);
    if (rank > 0 && l->o->log_dir)
        TD_TRY(open_log(l, rank, c));
    TD_TRY(choose_processors(l, rank));
    TD_TRY(td_child_fork(&l->children, rank, rank > 0, &is_child));
    if (is_child)
        be_rank(l, rank);
    return TD_OK;
}

/* --- the launch ------------------------------------------------------------------------------- */

static void release(launch *l)
{
    td_children_release(&l->children);
    td_local_links_close(&l->links);
    td_topology_release(&l->cpus);
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

/* the first rank that others have blamed */
static td_child *read_blame(const launch *l)
{
    int rank;
    if (read(l->blame[0], &rank, sizeof rank) != (ssize_t)sizeof rank)
        return NULL;
    return rank >= 0 && rank < l->children.n ? &l->children.at[rank] : NULL;
}

/* Is the failure a usage error that rank 0 has, too? */
static bool is_usage(const td_children *c)
{
    const td_child *cause = td_children_cause(c);
    return cause && cause->code == 2 && c->at[0].code == 2;
}

/*
 * Must the output of the cause be printed?  Rank 0's output is already on the terminal, and a usage
 * error of all ranks, too.
 */
static bool is_shown(const td_children *c)
{
    const td_child *cause = td_children_cause(c);
    return cause && cause != &c->at[0] && !is_usage(c);
}

static td_status start_all(launch *l)
{
    const int n = l->o->nproc;
    TD_TRY(td_children_make(n, &l->children));
    if (l->o->log_dir)
        TD_TRY(td_make_folder(l->o->log_dir));
    TD_TRY(choose_affinity(l));
    TD_TRY(open_blame(l));
    if (n > 1)
        TD_TRY(td_local_links_make(n, &l->links));
    td_status st = TD_OK;
    for (int i = 0; st == TD_OK && i < n; i++)
        st = start_one(l, i);
    if (st != TD_OK)
        td_children_signal(&l->children, SIGKILL);
    return st;
}

/* a td_attempt_run */
static td_status run_once(void *ctx, int ranks, td_attempt *out)
{
    td_status st = TD_OK;
    job *j = ctx;
    td_ranks_opts o = *j->o;
    o.nproc = ranks;
    launch *l = TD_NEW(launch);
    if (!l)
        return TD_ENOMEM;
    *l = (launch){ .o = &o,
                   .n_args = j->n_args,
                   .args = j->args,
                   .blame = { -1, -1 },
                   .is_restart = j->n_starts++ > 0 };
    TD_OUT(start_all(l));
    td_local_links_close(
        &l->links); /* a rank that ends closes its sockets, and the others see it */
    TD_OUT(td_children_watch(&l->children));
    l->children.blamed = read_blame(l);
    out->code = td_children_tell(&l->children, is_shown(&l->children), out->cause);
    if (is_usage(&l->children))
        *out->cause = '\0'; /* rank 0 has printed it, with the line of usage */
    out->is_lost = td_children_lost_one(&l->children);
    out->n_suspect = out->is_lost && !td_children_cause(&l->children)->is_ended;
out:
    release(l);
    return st;
}

td_status td_ranks_run(const td_ranks_opts *opts, int n_args, const char *const *args, int *code)
{
    *code = 0;
    TD_TRY(td_log_configure(opts->log));
    TD_TRY(refuse_nodes(opts));
    if (opts->hosts && opts->hostfile)
        return td_error(TD_EUSAGE, "--hosts and --hostfile exclude each other");
    if (opts->hosts || opts->hostfile)
        return td_hosts_run(opts, n_args, args, code);
    job j = { .o = opts, .n_args = n_args, .args = args };
    const td_restart_plan plan = { .ranks = opts->nproc,
                                   .restarts = opts->restarts,
                                   .min_ranks = opts->min_ranks,
                                   .is_here = true };
    return td_restarts_run(&plan, run_once, &j, code);
}
