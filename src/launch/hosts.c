/*
 * hosts.c -- `tandem launch --hosts`: the mpirun of Open MPI or MPICH starts the ranks
 *
 * The two have different options.  mpirun replaces this process, so that signals and the exit code
 * are its own.
 */
#include "launch/hosts.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/mpi_plugin.h"
#include "comm/rank_env.h"

enum { FILE_MAX = 1 << 20, RANKS_MAX = 4096 };

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

static td_status describe_hosts(const td_hosts *h, int nproc, td_text *out, int *n_ranks)
{
    *n_ranks = 0;
    for (int i = 0; i < h->n; i++) {
        const int slots = h->at[i].slots ? h->at[i].slots : nproc;
        if (h->at[i].slots && nproc != 1 && nproc != h->at[i].slots)
            return td_error(TD_EUSAGE, "machine '%s' has %d ranks, but --nproc is %d",
                            h->at[i].name, slots, nproc);
        td_text_add(out, "%s%s:%d", i ? "," : "", h->at[i].name, slots);
        *n_ranks += slots;
    }
    if (*n_ranks > RANKS_MAX)
        return td_error(TD_EUSAGE, "%d ranks, wanted at most %d", *n_ranks, RANKS_MAX);
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

td_status td_hosts_run(const td_ranks_opts *opts, int n_args, const char *const *args)
{
    td_status st = TD_OK;
    td_hosts hosts = { 0 };
    td_text list = { 0 }, settings = { 0 };
    command c = { 0 };
    char program[PATH_MAX], folder[PATH_MAX], count[16];
    mpirun mpi;
    int n_ranks;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0 || !getcwd(folder, sizeof folder))
        return td_error_errno(TD_EIO, "cannot find the path of this program or the working folder");
    program[n] = '\0';
    if (opts->log_dir)
        return td_error(TD_EUSAGE, "--log-dir and --hosts exclude each other: mpirun has options "
                                   "for the output of ranks");
    TD_OUT(read_hosts(opts, &hosts));
    TD_OUT(describe_hosts(&hosts, opts->nproc, &list, &n_ranks));
    TD_OUT(find_mpirun(opts->mpirun, &mpi));
    TD_OUT(pass_affinity(opts->cpu_affinity));
    TD_OUT(list_settings(mpi.kind == MPICH, &settings));
    snprintf(count, sizeof count, "%d", n_ranks);
    c.cap = (size_t)n_args + settings.len + 32; /* a setting has more bytes than words */
    c.words = td_alloc(c.cap, sizeof *c.words);
    TD_OUT(c.words ? TD_OK : TD_ENOMEM);
    add(&c, mpi.program);
    add_places(&c, mpi.kind, td_text_get(&list), count, folder);
    add_settings(&c, mpi.kind, &settings);
    add(&c, program);
    for (int i = 0; i < n_args; i++)
        add(&c, args[i]);
    td_log(TD_LOG_INFO, "launch", "%d ranks on %d machines by '%s'", n_ranks, hosts.n, mpi.program);
    (void)fflush(NULL);
    execv(mpi.program, (char *const *)(uintptr_t)c.words);
    st = td_error_errno(TD_EIO, "cannot start '%s'", mpi.program);
out:
    td_text_release(&settings);
    td_text_release(&list);
    td_free(c.words);
    td_free(hosts.at);
    return st;
}
