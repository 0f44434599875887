/* Assertion of the C test programs. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "clearstream_iwarp.h"

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,          \
                    iwarp_error_message());                                                         \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

#endif
