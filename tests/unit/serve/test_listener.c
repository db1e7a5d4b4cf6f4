/*
 * test_listener.c -- connections in the kernel's queue when a server ends, idle ones at the limit
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/listener.h"
#include "support/expect.h"

enum { CLIENTS = 40, WAIT_MS = 60000 };

static struct {
    td_listener *l;
    atomic_int n;
    td_peer *peers[CLIENTS];
    int fds[CLIENTS];
} taken;

static bool take(void *ctx, int fd, const struct sockaddr *address, socklen_t n)
{
    (void)ctx;
    (void)address;
    (void)n;
    const int i = atomic_load(&taken.n);
    taken.fds[i] = fd;
    taken.peers[i] = td_listener_add_peer(taken.l, fd);
    atomic_fetch_add(&taken.n, 1);
    return true;
}

static void open_listener(int max_connections)
{
    const td_listener_opts o = { .host = "127.0.0.1",
                                 .max_connections = max_connections,
                                 .timeout_s = 3600,
                                 .add_connection = take };
    atomic_store(&taken.n, 0);
    expect_ok(td_listener_open(&o, &taken.l));
}

static void close_listener(void)
{
    td_listener_stop(taken.l);
    for (int i = 0; i < atomic_load(&taken.n); i++) {
        if (taken.fds[i] < 0)
            continue;
        td_listener_remove_peer(taken.l, taken.peers[i]);
        close(taken.fds[i]);
    }
    td_listener_free(taken.l);
}

/* a client's socket; -1: it was refused */
static int connect_client(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)td_listener_port(taken.l)) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    return -1;
}

static void wait_for(int n)
{
    for (int i = 0; i < WAIT_MS / 10 && atomic_load(&taken.n) < n; i++)
        usleep(10000);
    assert_int_equal(atomic_load(&taken.n), n);
}

static void addresses_are_checked(void **state)
{
    static const char *const here[] = { "127.0.0.1", "127.3.2.1", "localhost", "::1",
                                        "::ffff:127.0.0.1" };
    static const char *const elsewhere[] = { "0.0.0.0", "::", "192.168.1.1", "::ffff:10.0.0.1" };
    bool is_loopback;
    (void)state;
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        expect_ok(td_host_is_loopback(here[i], &is_loopback));
        assert_true(is_loopback);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        expect_ok(td_host_is_loopback(elsewhere[i], &is_loopback));
        assert_false(is_loopback);
    }
    expect_error(td_host_is_loopback("nowhere", &is_loopback), TD_EUSAGE, "'nowhere' is not an");
}

/* all that the kernel accepted are handed over; who comes later is refused */
static void draining_loses_nobody(void **state)
{
    int clients[CLIENTS];
    (void)state;
    open_listener(1000);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_client();
    td_listener_drain(taken.l); /* before anything was accepted */
    expect_ok(td_listener_start(taken.l));
    wait_for(CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd p = { .fd = clients[i], .events = POLLIN };
        assert_true(clients[i] >= 0);
        assert_int_equal(poll(&p, 1, 0), 0); /* neither closed nor reset */
    }
    assert_int_equal(connect_client(), -1);
    for (int i = 0; i < CLIENTS; i++) {
        td_listener_set(taken.l, taken.peers[i], TD_PEER_SENDING);
        close(clients[i]);
    }
    assert_false(td_listener_is_quiet(taken.l));
    assert_false(td_listener_is_answering(taken.l));
    for (int i = 0; i < CLIENTS; i++)
        td_listener_set(taken.l, taken.peers[i], TD_PEER_IDLE);
    for (int i = 0; i < WAIT_MS / 10 && !td_listener_is_quiet(taken.l); i++)
        usleep(10000);
    assert_true(td_listener_is_quiet(taken.l));
    close_listener();
}

/* the longest idle one makes room, one that waits for an answer does not */
static void idle_connections_make_room(void **state)
{
    char byte;
    (void)state;
    open_listener(2);
    expect_ok(td_listener_start(taken.l));
    int busy = connect_client();
    wait_for(1);
    td_listener_set(taken.l, taken.peers[0], TD_PEER_WAITING);
    int idle = connect_client();
    wait_for(2);
    int late = connect_client();
    wait_for(3);
    assert_int_equal(recv(idle, &byte, 1, 0), 0); /* closed */
    struct pollfd p[] = { { .fd = busy, .events = POLLIN }, { .fd = late, .events = POLLIN } };
    assert_int_equal(poll(p, 2, 0), 0);
    assert_int_equal(td_listener_connections(taken.l), 3); /* the closed one has not left */
    close(busy);
    close(idle);
    close(late);
    close_listener();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(draining_loses_nobody),
        cmocka_unit_test(idle_connections_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
