/* An echo over TCP sockets, for librspreload; with a third argument they are
 * created with SOCK_CLOEXEC, as most current programs do. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7200)};
    char text[64] = "";
    if (count < 3 || inet_pton(AF_INET, arguments[2], &address.sin_addr) != 1)
        return 2;
    int one = socket(AF_INET, SOCK_STREAM | (count > 3 ? SOCK_CLOEXEC : 0), 0);
    if (strcmp(arguments[1], "serve") == 0) {
        int on = 1;
        setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(one, (struct sockaddr *)&address, sizeof address) != 0 || listen(one, 1) != 0)
            return 3;
        int peer = accept(one, NULL, NULL);
        for (ssize_t length; (length = read(peer, text, sizeof text)) > 0;)
            if (write(peer, text, length) != length)
                return 4;
        close(peer);
    } else {
        if (connect(one, (struct sockaddr *)&address, sizeof address) != 0)
            return 5;
        for (int number = 0; number < 20; number++) {
            snprintf(text, sizeof text, "echo %d", number);
            if (write(one, text, 16) != 16)
                return 6;
            memset(text, 0, sizeof text);
            for (ssize_t have = 0, length; have < 16; have += length)
                if ((length = read(one, text + have, 16 - have)) <= 0)
                    return 7;
            puts(text);
        }
    }
    close(one);
    return 0;
}
