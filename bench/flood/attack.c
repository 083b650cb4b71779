/* Hostile connections to loopback ports, as many a second as asked for, for a bounded time.
 *
 *   attack flood SECONDS RATE PORT [PORT]   from 127.0.0.2 to 127.0.0.9; prints JSON
 *   attack sink SECONDS PORT                accepts and resets: what the attacker alone costs the machine
 *
 * Four of ten connections leave at once, two send garbage, two begin a TLS hello, one is silent and one announces a
 * huge frame. All but the first four stay open until HELD further ones have come.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../clock.h"

enum { HELD = 2000, SOURCES = 8 };
static int held[HELD];

static void reset(int fd) {
    struct linger l = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(fd);
}

static void say(int fd, int kind, long n) {
    static const unsigned char hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};
    static const unsigned char huge[] = {5, 245, 225, 0, 0, 0, 0, 9, 0, 0, 0, 1};
    unsigned char noise[200];
    switch (kind) {
    case 4: case 5:
        for (unsigned i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)(n * 31 + i * 17);
        send(fd, noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 6: case 7:
        send(fd, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 9:
        send(fd, huge, sizeof huge, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    }
}

static int flood(double seconds, double rate, int ports, char **port) {
    long offered = 0, connected = 0, failed = 0, slot = 0;
    double start = now();
    for (int i = 0; i < HELD; i++) held[i] = -1;
    while (now() < start + seconds) {
        if (offered >= (now() - start) * rate) {
            usleep(200);
            continue;
        }
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port[offered % ports]))};
        struct sockaddr_in from = {.sin_family = AF_INET};
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (offered / ports) % SOURCES);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, kind = (offered / ports / SOURCES) % 10;
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        offered++;
        if (fd < 0 || bind(fd, (void *)&from, sizeof from) < 0 ||
            (connect(fd, (void *)&to, sizeof to) < 0 && errno != EINPROGRESS)) {
            failed++;
            if (fd >= 0) reset(fd);
            continue;
        }
        struct tcp_info info;
        socklen_t size = sizeof info;
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size); /* a SYN that is dropped is sent again, in seconds */
        connected += info.tcpi_state != TCP_SYN_SENT;
        say(fd, kind, offered);
        if (kind < 4) {
            reset(fd);
            continue;
        }
        if (held[slot] >= 0) reset(held[slot]);
        held[slot] = fd;
        slot = (slot + 1) % HELD;
    }
    printf("{\"offered\": %ld, \"connected\": %ld, \"failed\": %ld, \"seconds\": %.2f, \"cpu_s\": %.2f}\n", offered,
           connected, failed, now() - start, cpu());
    return 0;
}

static int sink(double seconds, int port) {
    double start = now();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&at, sizeof at) < 0 || listen(fd, 4096) < 0) {
        perror("sink");
        return 1;
    }
    while (now() < start + seconds) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, 100);
        for (int client; (client = accept(fd, NULL, NULL)) >= 0;) reset(client);
    }
    printf("{\"cpu_s\": %.2f}\n", cpu());
    return 0;
}

int main(int count, char **words) {
    if (count > 4 && !strcmp(words[1], "flood")) return flood(atof(words[2]), atof(words[3]), count - 4, words + 4);
    if (count == 4 && !strcmp(words[1], "sink")) return sink(atof(words[2]), atoi(words[3]));
    fprintf(stderr, "attack flood SECONDS RATE PORT...\nattack sink SECONDS PORT\n");
    return 2;
}
