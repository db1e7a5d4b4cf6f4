/*
 * hosts.c -- `tandem launch --hosts`: starts a `launch` on each machine by ssh
 */
#include "launch/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "comm/rank_env.h"
#include "launch/supervisor.h"

#define NO_ROUTE 255 /* ssh's exit code for a failed or lost connection */

enum { FILE_MAX = 1 << 20, WORDS = 64 };

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

/* --- the remote command ----------------------------------------------------------------------- */

typedef struct {
    const td_ranks_opts *o;
    int n_args;
    const char *const *args;
    td_hosts hosts;
    int nproc;
    const char *addr;
    char token[65];
    char program[PATH_MAX], folder[PATH_MAX];
    td_children children;
} machines;

static bool is_loopback(const char *name)
{
    return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 ||
           strcmp(name, "::1") == 0;
}

/* Does `name` denote this machine? */
static bool is_here(const char *name)
{
    char own[256] = "";
    if (is_loopback(name))
        return true;
    if (gethostname(own, sizeof own - 1) != 0)
        return false;
    return strcmp(name, own) == 0;
}

static td_status check(machines *m)
{
    const td_ranks_opts *o = m->o;
    const td_hosts *h = &m->hosts;
    if (o->nnodes != 1 || o->node_rank != 0)
        return td_error(TD_EUSAGE,
                        "--hosts and %s exclude each other: the latter starts each machine by hand",
                        o->nnodes != 1 ? "--nnodes" : "--node-rank");
    m->nproc = o->nproc;
    for (int i = 0; i < h->n; i++) {
        const int slots = h->at[i].slots, first = h->at[0].slots;
        if (slots != first)
            return td_error(
                TD_EUSAGE,
                "machine '%s' has %d ranks and '%s' has %d: wanted the same number on each machine",
                h->at[0].name, first, h->at[i].name, slots);
        if (slots && o->nproc != 1 && o->nproc != slots)
            return td_error(TD_EUSAGE, "machine '%s' has %d ranks, but --nproc is %d",
                            h->at[i].name, slots, o->nproc);
        if (slots)
            m->nproc = slots;
    }
    const char *at = strrchr(h->at[0].name, '@');
    m->addr = o->master_addr ? o->master_addr : at ? at + 1 : h->at[0].name;
    for (int i = 1; i < h->n && !o->master_addr; i++)
        if (is_loopback(m->addr) && !is_here(h->at[i].name))
            return td_error(TD_EUSAGE,
                            "machine '%s' cannot reach rank 0 at '%s': give --master-addr, or a "
                            "host name that other machines can resolve",
                            h->at[i].name, m->addr);
    return TD_OK;
}

static td_status add_word(const char **words, int *n, const char *word)
{
    if (*n + 1 >= WORDS)
        return td_error(TD_EUSAGE, "--ssh has too many words, at most %d", WORDS - 8);
    words[(*n)++] = word;
    words[*n] = NULL;
    return TD_OK;
}

/* The options of the `launch` on machine i, one per word; `numbers` holds the text of numbers. */
static int launch_words(const machines *m, int i, const char **words, char numbers[4][16])
{
    const td_ranks_opts *o = m->o;
    int n = 0;
    snprintf(numbers[0], 16, "%d", m->hosts.n);
    snprintf(numbers[1], 16, "%d", i);
    snprintf(numbers[2], 16, "%d", m->nproc);
    snprintf(numbers[3], 16, "%d", o->master_port);
    const char *const all[][2] = {
        { "--nnodes", numbers[0] },
        { "--node-rank", numbers[1] },
        { "--nproc", numbers[2] },
        { "--master-port", numbers[3] },
        { "--master-addr", m->hosts.n > 1 ? m->addr : NULL },
        { "--cpu-affinity", td_affinity_choices[o->cpu_affinity] },
        { "--log-dir", o->log_dir },
        { "--log", o->log },
    };
    words[n++] = "launch";
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k][1]) {
            words[n++] = all[k][0];
            words[n++] = all[k][1];
        }
    words[n] = NULL;
    return n;
}

/* Quote a word for a POSIX shell. */
static void add_quoted(td_text *t, const char *word)
{
    td_text_add(t, " '");
    for (; *word; word++) {
        if (*word == '\'')
            td_text_add(t, "'\\''");
        else
            td_text_add_bytes(t, word, 1);
    }
    td_text_add(t, "'");
}

/* Pass on the user's environment variables for the program and its threads. */
static void add_settings(td_text *t)
{
    extern char **environ;
    for (char **e = environ; *e; e++)
        if ((td_text_starts(*e, "TANDEM_") || td_text_starts(*e, "OMP_")) &&
            !td_text_starts(*e, TD_ENV_TOKEN "=") && !td_text_starts(*e, TD_ENV_LIFELINE "="))
            add_quoted(t, *e);
}

static td_status remote_line(const machines *m, int i, td_text *t)
{
    const char *words[32];
    char numbers[4][16];
    const char *program = m->o->remote_program ? m->o->remote_program : m->program;
    const int n = launch_words(m, i, words, numbers);
    td_text_add(t, "cd");
    add_quoted(t, m->folder);
    td_text_add(t, " && exec env " TD_ENV_LIFELINE "=1");
    add_settings(t);
    add_quoted(t, program);
    for (int k = 0; k < n; k++)
        add_quoted(t, words[k]);
    for (int k = 0; k < m->n_args; k++)
        add_quoted(t, m->args[k]);
    return td_text_status(t);
}

/* --- starting --------------------------------------------------------------------------------- */

static _Noreturn void be_here(const machines *m, int i)
{
    static const char *const exe = "/proc/self/exe";
    char numbers[4][16];
    const char *words[32];
    const int n = launch_words(m, i, words, numbers);
    const char **argv = td_alloc((size_t)(n + m->n_args) + 2, sizeof *argv);
    if (!argv)
        _exit(1);
    argv[0] = "tandem";
    memcpy(argv + 1, words, (size_t)n * sizeof *argv);
    for (int k = 0; k < m->n_args; k++)
        argv[1 + n + k] = m->args[k];
    setenv(TD_ENV_LIFELINE, "1", 1);
    execv(exe, (char *const *)(uintptr_t)argv);
    fprintf(stderr, "tandem: error: cannot start '%s' again: %s\n", exe, strerror(errno));
    _exit(1);
}

static _Noreturn void be_there(const char **words)
{
    execvp(words[0], (char *const *)(uintptr_t)words);
    fprintf(stderr, "tandem: error: --ssh: cannot start '%s': %s\n", words[0], strerror(errno));
    _exit(NO_ROUTE);
}

static td_status start(machines *m, int i, char *shell)
{
    const char *name = m->hosts.at[i].name, *words[WORDS];
    td_child *c = &m->children.at[i];
    td_text line = { 0 };
    bool is_child;
    int n = 0;
    td_status st = TD_OK;
    snprintf(c->name, sizeof c->name, "machine '%.80s'", name);
    for (char *w = shell; *(w += strspn(w, " \t"));) {
        const size_t len = strcspn(w, " \t");
        const bool is_last = w[len] == 0;
        w[len] = 0;
        TD_OUT(add_word(words, &n, w));
        w += len + !is_last;
    }
    if (n == 0)
        TD_OUT(td_error(TD_EUSAGE, "--ssh is empty, wanted a command"));
    TD_OUT(remote_line(m, i, &line));
    TD_OUT(add_word(words, &n, name));
    TD_OUT(add_word(words, &n, td_text_get(&line)));
    TD_OUT(td_child_fork(&m->children, i,
                         (td_child_ways){ .is_heard = i > 0, .has_lifeline = true }, &is_child));
    if (is_child && is_here(name))
        be_here(m, i);
    if (is_child)
        be_there(words);
    if (dprintf(c->lifeline, "%s\n", m->token) < 0)
        td_log(TD_LOG_DEBUG, "launch", "%s is not listening: %s", c->name, strerror(errno));
out:
    td_text_release(&line);
    return st;
}

static td_status start_all(machines *m)
{
    td_status st = TD_OK;
    for (int i = 0; st == TD_OK && i < m->hosts.n; i++) {
        td_text shell = { 0 };
        td_text_add(&shell, "%s", m->o->ssh ? m->o->ssh : "");
        st = td_text_status(&shell);
        if (st == TD_OK)
            st = start(m, i, shell.data);
        td_text_release(&shell);
    }
    return st;
}

static int tell(const machines *m)
{
    const td_child *c = m->children.first_failed;
    const int code = td_children_tell(&m->children, c && c != m->children.at);
    if (code != NO_ROUTE)
        return code;
    td_log(TD_LOG_ERROR, "launch",
           "cannot reach %s, or the connection was lost: check that '%s %s true' works without a "
           "prompt",
           c->name, m->o->ssh, m->hosts.at[c - m->children.at].name);
    return 1;
}

td_status td_hosts_run(const td_ranks_opts *opts, int n_args, const char *const *args, int *code)
{
    td_status st = TD_OK;
    machines *m = TD_NEW(machines);
    if (!m)
        return TD_ENOMEM;
    *m = (machines){ .o = opts, .n_args = n_args, .args = args };
    const ssize_t n = readlink("/proc/self/exe", m->program, sizeof m->program - 1);
    if (n <= 0 || !getcwd(m->folder, sizeof m->folder))
        TD_OUT(
            td_error_errno(TD_EIO, "cannot find the path of this program or the working folder"));
    TD_OUT(read_hosts(opts, &m->hosts));
    TD_OUT(check(m));
    TD_OUT(td_launch_token(m->token));
    TD_OUT(td_children_make(m->hosts.n, &m->children));
    td_signals_catch();
    st = start_all(m);
    if (st != TD_OK) {
        td_children_signal(&m->children, SIGKILL);
        goto out;
    }
    TD_OUT(td_children_watch(&m->children));
    *code = tell(m);
out:
    td_children_release(&m->children);
    td_free(m->hosts.at);
    td_free(m);
    return st;
}
