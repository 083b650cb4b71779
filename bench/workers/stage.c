/* A broker that answers every request at once, and clients with IN_FLIGHT requests each under way, in one thread.
 *
 *   stage BROKER_PORT PROXY_PORT CLIENTS SECONDS REQUEST_BYTES ANSWER_BYTES IN_FLIGHT
 *
 * Listens on BROKER_PORT, prints "ready", waits for a line on standard input, and then runs the clients. A request is a
 * Produce v3 frame of REQUEST_BYTES; its answer has ANSWER_BYTES and the same correlation id, which each client checks.
 * Connections that send another frame first (a proxy's own question) are closed. Prints JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../clock.h"

enum { MOST = 4096, MOST_BYTES = 65536 };
struct end { int is_client, have; uint32_t asked, answered; double sent_at; unsigned char data[MOST_BYTES]; };
static struct end *ends[MOST];
static unsigned char request[MOST_BYTES], answer[MOST_BYTES], outgoing[MOST_BYTES];
static int request_bytes, answer_bytes, in_flight, set;
static long answered, slow;
static double slowest;

static void die(const char *what) { perror(what); exit(1); }

static void put(unsigned char *at, uint32_t value) { value = htonl(value); memcpy(at, &value, 4); }

static void add(int fd, int is_client) {
    int one = 1;
    if (fd >= MOST) { fprintf(stderr, "too many connections\n"); exit(1); }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ends[fd] = calloc(1, sizeof(struct end));
    ends[fd]->is_client = is_client;
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static void drop(int fd) {
    if (ends[fd]->is_client) { fprintf(stderr, "a client lost its connection\n"); exit(1); }
    free(ends[fd]);
    ends[fd] = NULL;
    close(fd);
}

static void ask(int fd, int count) {
    struct end *e = ends[fd];
    for (int i = 0; i < count; i++) {
        put(request + 8, ++e->asked);
        memcpy(outgoing + i * request_bytes, request, request_bytes);
    }
    e->sent_at = now();
    if (send(fd, outgoing, count * request_bytes, MSG_NOSIGNAL) != count * request_bytes) die("send");
}

static void check(struct end *e, const unsigned char *frame) {
    uint32_t number;
    memcpy(&number, frame + 4, 4);
    if (ntohl(number) != ++e->answered) { fprintf(stderr, "an answer for another request\n"); exit(1); }
    double took = now() - e->sent_at;
    slow += took > 0.05;
    if (took > slowest) slowest = took;
    answered++;
}

static void serve(int fd) {
    struct end *e = ends[fd];
    int whole = e->is_client ? answer_bytes : request_bytes, at = 0, count = 0;
    ssize_t got = recv(fd, e->data + e->have, sizeof e->data - e->have, 0);
    if (got <= 0) { drop(fd); return; }
    e->have += got;
    if (!e->is_client && e->have >= 6 && (e->data[4] || e->data[5])) { drop(fd); return; }  /* not Produce */
    for (; e->have - at >= whole; at += whole, count++) {
        if (e->is_client) {
            check(e, e->data + at);
        } else {
            memcpy(answer + 4, e->data + at + 8, 4);
            memcpy(outgoing + count * answer_bytes, answer, answer_bytes);
        }
    }
    e->have -= at;
    memmove(e->data, e->data + at, e->have);
    if (count && e->is_client) ask(fd, count);
    else if (count && send(fd, outgoing, count * answer_bytes, MSG_NOSIGNAL) != count * answer_bytes) drop(fd);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int open_port(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in at = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&at, sizeof at) || listen(fd, 1024)) die("listen");
    return fd;
}

static void run(int listening, double until) {
    struct epoll_event events[64];
    while (now() < until) {
        int count = epoll_wait(set, events, 64, 20);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listening) {
                int other = accept(listening, NULL, NULL);
                if (other >= 0) add(other, 0);
            } else if (fd == 0) {
                return;
            } else if (ends[fd]) {
                serve(fd);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 8) return 2;
    int listening = open_port(atoi(argv[1])), clients = atoi(argv[3]);
    double seconds = atof(argv[4]);
    request_bytes = atoi(argv[5]);
    answer_bytes = atoi(argv[6]);
    in_flight = atoi(argv[7]);
    if (in_flight * request_bytes > MOST_BYTES) { fprintf(stderr, "too many bytes under way\n"); return 2; }
    memset(request, 'x', sizeof request);
    put(request, request_bytes - 4);
    put(request + 4, 3);                 /* Produce (0), version 3 */
    memcpy(request + 12, "\0\1c\xff\xff\0\1\0\0\x75\x30", 11); /* client id "c", no transaction, acks=1, 30 s */
    put(answer, answer_bytes - 4);
    set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = listening}}, input = {EPOLLIN, {.fd = 0}};
    epoll_ctl(set, EPOLL_CTL_ADD, listening, &event);
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &input);
    printf("ready\n");
    fflush(stdout);
    run(listening, now() + 120);
    epoll_ctl(set, EPOLL_CTL_DEL, 0, NULL);
    struct sockaddr_in at = loopback(atoi(argv[2]));
    for (int i = 0; i < clients; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&at, sizeof at)) die("connect");
        add(fd, 1);
        ask(fd, in_flight);
        run(listening, now() + 0.01);
    }
    run(listening, now() + 1);           /* warm */
    printf("measuring\n");
    fflush(stdout);
    answered = slow = 0;
    slowest = 0;
    double cpu_before = cpu(), began = now();
    run(listening, began + seconds);
    double took = now() - began;
    printf("{\"requests\": %ld, \"seconds\": %.4f, \"cpu_s\": %.3f, ", answered, took, cpu() - cpu_before);
    printf("\"slow\": %ld, \"slowest_s\": %.4f}\n", slow, slowest);
    return 0;
}
