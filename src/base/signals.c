/*
 * signals.c -- installs the signal handlers
 */
#include "base/signals.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int caught; /* lock-free, so a handler may touch it */

static void (*tidy)(void); /* before the end of process `owner`, not of its children */
static pid_t owner;

static void tidy_own(void)
{
    if (tidy && getpid() == owner)
        tidy();
}

static void on_signal(int sig)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&caught, &none, sig) && sig != SIGHUP) {
        tidy_own();
        _exit(128 + sig);
    }
}

/* the default action, which SA_RESETHAND has restored, follows when the handler returns */
static void end_tidily(int sig)
{
    tidy_own();
    raise(sig);
}

static void ignore(int sig)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigemptyset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

/* signals that end a job */
static const int stops[] = { SIGINT, SIGTERM, SIGUSR1, SIGHUP };

static bool is_ignored(int sig)
{
    struct sigaction now;
    return sigaction(sig, NULL, &now) != 0 || now.sa_handler == SIG_IGN;
}

void td_signals_catch(void)
{
    struct sigaction catch = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&catch.sa_mask);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] != SIGHUP || !is_ignored(SIGHUP)) /* ignored under nohup */
            sigaction(stops[i], &catch, NULL);
    ignore(SIGPIPE);
    td_signals_ignore_file_limit();
}

void td_signals_tidy(void (*call)(void))
{
    struct sigaction end = { .sa_handler = end_tidily, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&end.sa_mask);
    tidy = call;
    owner = getpid();
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (!is_ignored(stops[i]))
            sigaction(stops[i], &end, NULL);
}

void td_signals_default(void)
{
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (!is_ignored(stops[i]))
            signal(stops[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
}

void td_signals_block(sigset_t *before)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

void td_signals_ignore_file_limit(void)
{
    ignore(SIGXFSZ);
}

int td_signal_caught(void)
{
    return atomic_load(&caught);
}
