/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Evaluates the arithmetic for arithmetic.rs, one request per line. */
#include <stdio.h>
#include <string.h>

#include "../bpf/htcp_arithmetic.h"

int main(void)
{
	char what[16];
	unsigned long long a, b, c, d;

	while (scanf("%15s %llu %llu %llu %llu", what, &a, &b, &c, &d) == 5) {
		unsigned long long result;

		if (!strcmp(what, "increase"))
			result = htcp_increase(a);
		else if (!strcmp(what, "alpha"))
			result = htcp_alpha(a, b, c);
		else if (!strcmp(what, "beta"))
			result = htcp_beta(a, b, c, d);
		else if (!strcmp(what, "backoff"))
			result = htcp_backoff(a, b);
		else if (!strcmp(what, "growth")) {
			result = htcp_growth(a, b, c, &d);
			printf("%llu ", d);
		} else if (!strcmp(what, "recovery")) {
			/* Microseconds from beta * window to window, one round trip at a time. */
			htcp_u32 window = htcp_backoff(a, c);
			htcp_u64 credit = 0;

			for (result = 0; window < a; result += b)
				window += htcp_growth(window, window, htcp_alpha(result, c, b), &credit);
		} else
			return 1;
		printf("%llu\n", result);
		fflush(stdout);
	}
	return 0;
}
