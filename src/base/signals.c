/*
 * signals.c -- installs the signal handlers
 */
#include "base/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int caught; /* lock-free, so a handler may touch it */

static void on_signal(int sig)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&caught, &none, sig) && sig != SIGHUP)
        _exit(128 + sig);
}

static void ignore(int sig)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigemptyset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

void td_signals_catch(void)
{
    struct sigaction catch = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&catch.sa_mask);
    sigaction(SIGINT, &catch, NULL);
    sigaction(SIGTERM, &catch, NULL);
    sigaction(SIGUSR1, &catch, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* not under nohup */
        sigaction(SIGHUP, &catch, NULL);
    ignore(SIGPIPE);
    td_signals_ignore_file_limit();
}

void td_signals_ignore_file_limit(void)
{
    ignore(SIGXFSZ);
}

int td_signal_caught(void)
{
    return atomic_load(&caught);
}
