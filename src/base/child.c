/*
 * child.c -- runs a function in a forked process and reads its result from a pipe
 *
 *     child:  work() -> [ status | text, or the message ] -> pipe -> end
 *     parent: poll, read to the end, wait
 */
#include "base/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/signals.h"

enum { POLL_MS = 200 };

/* --- the child -------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *bytes, size_t n)
{
    for (const char *p = bytes; n > 0;) {
        ssize_t sent = write(fd, p, n);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

static _Noreturn void run_child(int fd, td_status (*work)(void *ctx, td_text *out), void *ctx)
{
    td_text text = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* end when the parent ends */
    td_status st = work(ctx, &text);
    if (st == TD_OK)
        st = td_text_status(&text);
    const char *answer = st == TD_OK ? td_text_get(&text) : td_error_message();
    bool is_sent = send_all(fd, &st, sizeof st) && send_all(fd, answer, strlen(answer));
    _exit(is_sent ? 0 : 1);
}

/* --- the parent ------------------------------------------------------------------------------- */

/* reads until the child closes its end of the pipe */
static td_status receive(int fd, pid_t pid, td_text *out)
{
    char part[4096];
    bool is_signal_sent = false;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, POLL_MS);
        if (!is_signal_sent && td_signal_caught()) {
            kill(pid, td_signal_caught());
            is_signal_sent = true;
        }
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_error_errno(TD_EIO, "cannot read from a child process");
        if (n == 0)
            return td_text_status(out);
        td_text_add_bytes(out, part, (size_t)n);
    }
}

static td_status wait_for(pid_t pid)
{
    int how;
    pid_t gone;
    do
        gone = waitpid(pid, &how, 0);
    while (gone < 0 && errno == EINTR);
    if (gone < 0)
        return td_error_errno(TD_EIO, "cannot wait for a child process");
    if (WIFSIGNALED(how))
        return td_error(TD_EIO, "a child process was killed by signal %d%s", WTERMSIG(how),
                        WTERMSIG(how) == SIGKILL ? ", perhaps because memory ran out" : "");
    if (WEXITSTATUS(how) != 0)
        return td_error(TD_EIO, "a child process exited with code %d", WEXITSTATUS(how));
    return TD_OK;
}

static td_status unpack(const td_text *answer, td_text *out)
{
    td_status st;
    if (answer->len < sizeof st)
        return td_error(TD_EIO, "a child process sent %zu bytes, wanted a status", answer->len);
    memcpy(&st, answer->data, sizeof st);
    if (st != TD_OK)
        return td_error_set(st, answer->data + sizeof st);
    td_text_add_bytes(out, answer->data + sizeof st, answer->len - sizeof st);
    return td_text_status(out);
}

td_status td_child_run(td_status (*work)(void *ctx, td_text *out), void *ctx, td_text *out)
{
    int fd[2];
    td_text answer = { 0 };
    if (pipe(fd) != 0)
        return td_error_errno(TD_EIO, "cannot create a pipe");
    pid_t pid = fork();
    if (pid < 0) {
        td_status failed = td_error_errno(TD_EIO, "cannot start a child process");
        close(fd[0]);
        close(fd[1]);
        return failed;
    }
    if (pid == 0) {
        close(fd[0]);
        run_child(fd[1], work, ctx);
    }
    close(fd[1]);
    td_status read_st = receive(fd[0], pid, &answer);
    close(fd[0]);
    td_status st = wait_for(pid);
    if (st == TD_OK)
        st = read_st;
    if (st == TD_OK)
        st = unpack(&answer, out);
    td_text_release(&answer);
    return st;
}
