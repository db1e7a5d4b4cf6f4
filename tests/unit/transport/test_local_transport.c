/* ctest: labels threads */
/*
 * test_local_transport.c -- why a rank has failed is not lost, in whatever order its connections,
 * its message and those of other ranks are noticed
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "support/ranks.h"
#include "transport/local_transport.h"

/* in a rank's body: leave with the line where something is wrong */
#define WANT(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return __LINE__ % 120 + 1;                                                             \
    } while (0)

static const double forever_s = 600; /* ctest ends the test before */

/* in memory that the ranks share */
typedef struct {
    bool sends_data;      /* the failing rank's message follows data that nobody expects */
    _Atomic int n_open;   /* ranks that know all names */
    _Atomic int n_closed; /* ranks whose connections are closed */
} order;

static order *shared;

static void wait_for(_Atomic int *count, int n)
{
    while (atomic_load(count) < n)
        usleep(1000);
}

static void close_links(td_transport *t)
{
    td_transport_free(t);
    atomic_fetch_add(&shared->n_closed, 1);
}

/* returns when all ranks have been opened */
static td_status open_rank(const td_rank_place *place, double reason_s, td_transport **t)
{
    const td_transport_opts opts = { .stall_s = forever_s, .reason_s = reason_s };
    td_status st = td_local_transport_open(place, &opts, t);
    if (st == TD_OK)
        st = td_transport_exchange_names(*t);
    atomic_fetch_add(&shared->n_open, 1);
    wait_for(&shared->n_open, place->size);
    return st;
}

static td_status send_byte(td_transport *t, int to)
{
    static const char byte = 1;
    return td_transport_exchange(
        t, &(td_exchange){ .kind = TD_EXCHANGE_PEERS,
                           .peers = { { .rank = to, .out = &byte, .n_out = 1 } } });
}

/* a failure that names itself is sent, and the connections are closed */
static void fail_with(td_transport *t, const char *what)
{
    char why[TD_WHY_BYTES];
    snprintf(why, sizeof why, "%s: %s", td_transport_name(t, t->rank), what);
    td_transport_leave(t, why);
    close_links(t);
}

static void all_are_well(int size, int (*body)(const td_rank_place *place, void *ctx),
                         bool sends_data)
{
    int codes[3];
    *shared = (order){ .sends_data = sends_data };
    td_test_ranks(size, body, NULL, codes);
    for (int r = 0; r < size; r++)
        assert_int_equal(codes[r], 0);
}

/* --- its own connection ----------------------------------------------------------------------- */

/* rank 0 finds out by sending, while the message waits to be read */
static int send_to_a_closed_connection(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    td_transport *t;
    WANT(open_rank(place, 0, &t) == TD_OK);
    if (place->rank == 1) {
        if (shared->sends_data)
            WANT(send_byte(t, 0) == TD_OK);
        fail_with(t, "no such GPU");
        return 0;
    }
    wait_for(&shared->n_closed, 1);
    td_status st = send_byte(t, 1);
    if (st == TD_OK)
        st = td_transport_progress(t, 0);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "no such GPU"));
    WANT(td_transport_culprit(t) == 1);
    td_transport_free(t);
    return 0;
}

static void a_message_is_read_before_a_closed_connection_is_reported(void **state)
{
    (void)state;
    all_are_well(2, send_to_a_closed_connection, false);
    all_are_well(2, send_to_a_closed_connection, true);
}

/* --- by way of another rank ------------------------------------------------------------------- */

/* the descriptors of a rank: [3] */
static bool read_fds(const td_rank_place *place, int *fds)
{
    int64_t fd;
    char text[64], *rest = text;
    snprintf(text, sizeof text, "%s", place->fds);
    for (int r = 0; r < place->size; r++) {
        const char *word = strsep(&rest, ",");
        if (!word)
            return false;
        fds[r] = td_text_to_int(word, &fd) ? (int)fd : -1;
    }
    return true;
}

/* rank 2's message reaches rank 1 only, which takes its time */
static int hear_it_from_another(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    td_transport *t;
    int fds[3];
    WANT(open_rank(place, forever_s, &t) == TD_OK);
    if (place->rank == 2) {
        WANT(read_fds(place, fds) && shutdown(fds[0], SHUT_RDWR) == 0);
        fail_with(t, "no such GPU");
        return 0;
    }
    wait_for(&shared->n_closed, 1);
    td_status st = place->rank == 1 ? TD_OK : send_byte(t, 2);
    while (st == TD_OK && place->rank == 1)
        st = td_transport_progress(t, 1000);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 2 ("));
    WANT(strstr(td_error_message(), "no such GPU"));
    if (place->rank == 1) {
        usleep(300000); /* rank 0 has seen by now that the connection is closed */
        td_transport_leave(t, td_error_message());
    }
    td_transport_free(t);
    return 0;
}

static void a_message_that_is_passed_on_is_waited_for(void **state)
{
    (void)state;
    all_are_well(3, hear_it_from_another, false);
}

/* rank 2 is killed: no rank has a reason, and rank 0 does not wait for long */
static int hear_nothing(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    td_transport *t;
    WANT(open_rank(place, place->rank == 0 ? 0.05 : forever_s, &t) == TD_OK);
    if (place->rank == 2)
        return 0; /* the process ends here */
    td_status st = TD_OK;
    while (st == TD_OK)
        st = td_transport_progress(t, 1000);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 2 ("));
    WANT(strstr(td_error_message(), "is gone") && td_transport_culprit(t) == 2);
    td_transport_leave(t, td_error_message());
    td_transport_free(t);
    return 0;
}

static void the_wait_for_a_message_ends(void **state)
{
    (void)state;
    all_are_well(3, hear_nothing, false);
}

/* rank 1 knows only that rank 2 is gone; rank 2's own message is unread */
static int hear_both(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    td_transport *t;
    WANT(open_rank(place, forever_s, &t) == TD_OK);
    if (place->rank == 2) {
        if (shared->sends_data)
            WANT(send_byte(t, 0) == TD_OK);
        fail_with(t, "no such GPU");
        return 0;
    }
    if (place->rank == 1) {
        td_transport_leave(t, "rank 2 (host, process 1) is gone");
        close_links(t);
        return 0;
    }
    wait_for(&shared->n_closed, 2);
    td_status st = TD_OK;
    while (st == TD_OK)
        st = td_transport_progress(t, 1000);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "no such GPU"));
    td_transport_free(t);
    return 0;
}

static void the_own_message_of_a_rank_is_preferred(void **state)
{
    (void)state;
    all_are_well(3, hear_both, false);
    all_are_well(3, hear_both, true);
}

/* --- hostile ranks ---------------------------------------------------------------------------- */

enum { MAGIC = 0x4d44, ABORT = 4 };

typedef struct {
    uint32_t magic, kind;
    uint64_t n;
} frame_head;

/* ranks 1 and 2 blame each other, and then each other, and so on */
static int hear_accusations(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    enum { N = 2000 };
    td_transport *t;
    int fds[3];
    WANT(open_rank(place, forever_s, &t) == TD_OK);
    if (place->rank > 0) {
        const char *why = place->rank == 1 ? "rank 2 (x)" : "rank 1 (x)";
        const frame_head head = { MAGIC, ABORT, strlen(why) };
        char frame[sizeof head + 10];
        memcpy(frame, &head, sizeof head);
        memcpy(frame + sizeof head, why, 10);
        WANT(read_fds(place, fds));
        for (int i = 0; i < N; i++)
            if (send(fds[0], frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                break; /* the socket is full, or rank 0 has ended */
        close_links(t);
        return 0;
    }
    wait_for(&shared->n_closed, 2);
    td_status st = TD_OK;
    while (st == TD_OK)
        st = td_transport_progress(t, 1000);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "(x)"));
    td_transport_free(t);
    return 0;
}

/* rank 1 neither reads nor closes: what is sent to it fails, and that is the end */
static int send_to_the_deaf(const td_rank_place *place, void *ctx)
{
    (void)ctx;
    td_transport *t;
    int fds[3];
    WANT(open_rank(place, 0.05, &t) == TD_OK);
    if (place->rank == 1) {
        WANT(read_fds(place, fds) && shutdown(fds[0], SHUT_RD) == 0);
        atomic_fetch_add(&shared->n_closed, 1);
        wait_for(&shared->n_closed, 2);
        td_transport_free(t);
        return 0;
    }
    wait_for(&shared->n_closed, 1);
    td_status st = send_byte(t, 1);
    WANT(st == TD_EDEVICE && strstr(td_error_message(), "rank 1 ("));
    close_links(t);
    return 0;
}

static void hostile_ranks_end_a_wait(void **state)
{
    (void)state;
    all_are_well(3, hear_accusations, false);
    all_are_well(2, send_to_the_deaf, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_read_before_a_closed_connection_is_reported),
        cmocka_unit_test(a_message_that_is_passed_on_is_waited_for),
        cmocka_unit_test(the_wait_for_a_message_ends),
        cmocka_unit_test(the_own_message_of_a_rank_is_preferred),
        cmocka_unit_test(hostile_ranks_end_a_wait),
    };
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
