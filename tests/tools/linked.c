/*
 * linked.c -- runs two commands as ranks 0 and 1 of one run, connected as `tandem launch` does, so
 * that a test can give them different options
 *
 *     linked COMMAND... ::: COMMAND...
 *         stdout and stderr of the first are this program's; those of the second go to out1 and
 *         err1.  Prints nothing; the exit code of the first, and that of the second in the file
 *         code1.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void redirect(const char *path, int fd)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || dup2(file, fd) != fd)
        _exit(126);
}

static pid_t start(char **command, int rank, int own, int other)
{
    char fds[32];
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    close(other);
    snprintf(fds, sizeof fds, rank == 0 ? "-,%d" : "%d,-", own);
    setenv("TANDEM_RANK_FDS", fds, 1);
    setenv("RANK", rank == 0 ? "0" : "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    if (rank == 1) {
        redirect("out1", 1);
        redirect("err1", 2);
    }
    execvp(command[0], command);
    perror(command[0]);
    _exit(127);
}

static int code_of(pid_t pid)
{
    int how;
    if (pid < 0 || waitpid(pid, &how, 0) != pid)
        return 125;
    return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

int main(int argc, char **argv)
{
    int pair[2], at = 1;
    while (at < argc && strcmp(argv[at], ":::") != 0)
        at++;
    if (at < 2 || at + 1 >= argc || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        fprintf(stderr, "usage: linked COMMAND... ::: COMMAND...\n");
        return 2;
    }
    argv[at] = NULL;
    const pid_t first = start(argv + 1, 0, pair[0], pair[1]);
    const pid_t second = start(argv + at + 1, 1, pair[1], pair[0]);
    close(pair[0]);
    close(pair[1]);
    const int code = code_of(first), code1 = code_of(second);
    FILE *f = fopen("code1", "w");
    if (!f || fprintf(f, "%d\n", code1) < 0 || fclose(f) != 0)
        return 126;
    return code;
}
