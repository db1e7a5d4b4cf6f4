/*
 * slow_link.c -- joins network namespaces by links of a given rate and delay, for kernels without
 * tc's netem
 *
 *     slow_link GBIT DELAY_US NAMESPACE...      prints "ready", then runs until it is killed
 *
 * Each namespace gets a device net0, and a frame goes to the device whose address it has, or to
 * all.  A frame leaves when those before it on both links have left, and arrives DELAY_US later.
 * Requires root.
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MAX = 64, FRAME_MAX = 9100, QUEUE = 1 << 13, ADDRESS = 6 };

typedef struct {
    int64_t due_ns;
    int n;
    unsigned char bytes[FRAME_MAX];
} frame;

typedef struct {
    int fd;
    int64_t out_free_ns, in_free_ns; /* when the link will have carried what it was given */
    unsigned char address[ADDRESS];  /* the source of the last frame from here */
    frame *queue;                    /* [QUEUE] frames to this port, by due time */
    unsigned head, tail;
} port;

static port ports[PORTS_MAX];
static int n_ports;
static double ns_per_byte;
static int64_t delay_ns;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* in its namespace: a device */
static int open_device(const char *name)
{
    char path[256];
    struct ifreq r = { .ifr_name = "net0", .ifr_flags = IFF_TAP | IFF_NO_PI };
    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    const int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
        die(path);
    close(ns);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) != 0)
        die("/dev/net/tun");
    return fd;
}

/* a full queue drops the frame, as a switch does */
static void deliver(port *to, const unsigned char *bytes, int n, int64_t left_ns)
{
    if (to->tail - to->head == QUEUE)
        return;
    frame *f = &to->queue[to->tail++ % QUEUE];
    const int64_t begin_ns = to->in_free_ns > left_ns ? to->in_free_ns : left_ns;
    to->in_free_ns = begin_ns + (int64_t)(n * ns_per_byte);
    f->due_ns = to->in_free_ns + delay_ns;
    f->n = n;
    memcpy(f->bytes, bytes, (size_t)n);
}

static void forward(port *from, const unsigned char *bytes, int n)
{
    const int64_t now = now_ns();
    const int64_t left_ns = from->out_free_ns > now ? from->out_free_ns : now;
    from->out_free_ns = left_ns + (int64_t)(n * ns_per_byte);
    memcpy(from->address, bytes + ADDRESS, ADDRESS);
    port *only = NULL;
    for (port *p = ports; p < ports + n_ports; p++)
        if (memcmp(p->address, bytes, ADDRESS) == 0)
            only = p;
    for (port *p = ports; p < ports + n_ports; p++)
        if (p != from && (!only || p == only))
            deliver(p, bytes, n, left_ns);
}

static void receive(port *p)
{
    unsigned char bytes[FRAME_MAX];
    for (int i = 0; i < 16; i++) {
        const ssize_t n = read(p->fd, bytes, sizeof bytes);
        if (n < 2 * ADDRESS)
            return;
        forward(p, bytes, (int)n);
    }
}

/* sends what is due; when the next frame is, or -1 */
static int64_t send_due(port *p)
{
    for (; p->head != p->tail; p->head++) {
        const frame *f = &p->queue[p->head % QUEUE];
        if (f->due_ns > now_ns())
            return f->due_ns;
        if (write(p->fd, f->bytes, (size_t)f->n) < 0) {
            /* the device is down or full: the frame is lost */
        }
    }
    return -1;
}

static void carry(void)
{
    struct pollfd fds[PORTS_MAX];
    for (int i = 0; i < n_ports; i++)
        fds[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
    for (;;) {
        int64_t next_ns = -1;
        for (int i = 0; i < n_ports; i++) {
            const int64_t due_ns = send_due(&ports[i]);
            next_ns = due_ns >= 0 && (next_ns < 0 || due_ns < next_ns) ? due_ns : next_ns;
        }
        int64_t wait_ns = next_ns < 0 ? 1000000000 : next_ns - now_ns();
        wait_ns = wait_ns > 0 ? wait_ns : 0;
        const struct timespec t = { .tv_sec = wait_ns / 1000000000,
                                    .tv_nsec = wait_ns % 1000000000 };
        if (ppoll(fds, (nfds_t)n_ports, &t, NULL) <= 0)
            continue;
        for (int i = 0; i < n_ports; i++)
            if (fds[i].revents & POLLIN)
                receive(&ports[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 3 + PORTS_MAX || atof(argv[1]) <= 0) {
        fputs("usage: slow_link GBIT DELAY_US NAMESPACE...\n", stderr);
        return 2;
    }
    ns_per_byte = 8 / atof(argv[1]);
    delay_ns = (int64_t)(atof(argv[2]) * 1000);
    for (n_ports = 0; n_ports < argc - 3; n_ports++) {
        ports[n_ports].fd = open_device(argv[3 + n_ports]);
        ports[n_ports].queue = calloc(QUEUE, sizeof(frame));
        if (!ports[n_ports].queue)
            die("memory");
    }
    puts("ready");
    fflush(stdout);
    carry();
}
