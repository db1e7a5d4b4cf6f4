/*
 * held.c -- runs a command and holds it at a given output line, so that a test can act there
 *
 *     held FILE WORDS COMMAND...
 *         COMMAND replaces this process; its stderr goes to FILE.  After the first line with WORDS
 *         (a basic regular expression) nothing more is read from it until FILE.go exists: the
 *         pipe holds one line, the next write blocks.  FILE.open exists while more output may
 *         come.
 */
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 4096, PATH_BYTES = 4096, POLL_MS = 2, HELD_S = 60 };

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(125);
}

static void wait_for(const char *path)
{
    struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
    for (int ms = 0; ms < HELD_S * 1000 && access(path, F_OK) != 0; ms += POLL_MS)
        nanosleep(&pause, NULL);
}

static void put(int fd, const char *bytes, ssize_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, (size_t)n);
        if (done < 0 && errno != EINTR)
            return;
        if (done > 0) {
            bytes += done;
            n -= done;
        }
    }
}

/* until every writer is gone */
static void copy(int from, int to, const regex_t *words, const char *go)
{
    char packet[PACKET_BYTES + 1];
    bool held = false;
    for (;;) {
        ssize_t n = read(from, packet, PACKET_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        packet[n] = 0;
        put(to, packet, n);
        if (!held && regexec(words, packet, 0, NULL, 0) == 0) {
            held = true;
            wait_for(go);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        die("held FILE WORDS COMMAND...");
    char go[PATH_BYTES], open_name[PATH_BYTES];
    snprintf(go, sizeof go, "%s.go", argv[1]);
    snprintf(open_name, sizeof open_name, "%s.open", argv[1]);
    regex_t words;
    if (regcomp(&words, argv[2], REG_NOSUB | REG_NEWLINE) != 0)
        die("held: '%s' is no regular expression", argv[2]);

    /* O_DIRECT: a write is a packet, a packet has a page of its own; one page: one packet */
    int ends[2], file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    int mark = open(open_name, O_WRONLY | O_CREAT, 0666);
    if (file < 0 || mark < 0)
        die("held: cannot write '%s': %s", argv[1], strerror(errno));
    if (pipe2(ends, O_DIRECT) != 0 || fcntl(ends[1], F_SETPIPE_SZ, PACKET_BYTES) < 0)
        die("held: no pipe of packets: %s", strerror(errno));
    unlink(go);

    /* the copier is nobody's child: the command must not find one that it did not start */
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            int none = open("/dev/null", O_RDWR);
            dup2(none, STDIN_FILENO);
            dup2(none, STDOUT_FILENO);
            dup2(none, STDERR_FILENO);
            close(ends[1]);
            setsid(); /* a Ctrl-C is the command's */
            copy(ends[0], file, &words, go);
            unlink(open_name);
        }
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid)
        die("held: cannot start: %s", strerror(errno));
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    close(file);
    close(mark);
    execvp(argv[3], argv + 3);
    die("held: cannot start '%s': %s", argv[3], strerror(errno));
}
