/* Hostile TLS clients: some try to renegotiate (TLS 1.2), some update their keys again and again (TLS 1.3).
 *
 *   tls_attack SECONDS PORT   from 127.0.0.10 to 127.0.0.13; prints JSON
 */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 4, FIRST = 10, BURST = 12, PAUSE_US = 20000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static SSL *begin(SSL_CTX *context, int port, int client) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct timeval patience = {.tv_sec = 1};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + FIRST + client);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (bind(fd, (void *)&from, sizeof from) < 0 || connect(fd, (void *)&to, sizeof to) < 0) {
        close(fd);
        return NULL;
    }
    SSL *tls = SSL_new(context);
    int version = client % 2 ? TLS1_3_VERSION : TLS1_2_VERSION;
    SSL_set_min_proto_version(tls, version);
    SSL_set_max_proto_version(tls, version);
    SSL_set_fd(tls, fd);
    return tls;
}

static void end(SSL *tls) {
    close(SSL_get_fd(tls));
    SSL_free(tls);
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "tls_attack SECONDS PORT\n");
        return 2;
    }
    long handshakes = 0, failed = 0, tried = 0, renegotiated = 0, updates = 0;
    double start = now(), seconds = atof(words[1]);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *clients[CLIENTS] = {NULL};
    signal(SIGPIPE, SIG_IGN);
    while (now() < start + seconds) {
        usleep(PAUSE_US);
        for (int client = 0; client < CLIENTS; client++) {
            SSL *tls = clients[client];
            int fine = 1;
            if (tls == NULL) {
                if ((tls = begin(context, atoi(words[2]), client)) == NULL) {
                    failed++;
                    continue;
                }
                fine = SSL_connect(tls) == 1;
                if (fine) handshakes++;
                else failed++;
            } else if (client % 2) {
                for (int i = 0; i < BURST && fine; i++) {
                    fine = SSL_key_update(tls, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(tls) == 1;
                    updates += fine;
                }
            } else {
                tried++;
                fine = SSL_renegotiate(tls) == 1 && SSL_do_handshake(tls) == 1;
                renegotiated += fine;
            }
            if (!fine) {
                end(tls);
                tls = NULL;
            }
            clients[client] = tls;
        }
    }
    printf("{\"handshakes\": %ld, \"failed\": %ld, \"tried\": %ld, \"renegotiated\": %ld, \"key_updates\": %ld}\n",
           handshakes, failed, tried, renegotiated, updates);
    return 0;
}
