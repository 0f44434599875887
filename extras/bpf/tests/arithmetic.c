/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Answers questions about the arithmetic, one per line, for arithmetic.rs. */
#include <stdio.h>
#include <string.h>

#include "../bpf/htcp_arithmetic.h"

int main(void)
{
	char what[16];
	unsigned long long a, b, c, d;

	while (scanf("%15s %llu %llu %llu %llu", what, &a, &b, &c, &d) == 5) {
		unsigned long long answer;

		if (!strcmp(what, "increase"))
			answer = htcp_increase(a);
		else if (!strcmp(what, "alpha"))
			answer = htcp_alpha(a, b, c);
		else if (!strcmp(what, "beta"))
			answer = htcp_beta(a, b, c, d);
		else if (!strcmp(what, "backoff"))
			answer = htcp_backoff(a, b);
		else if (!strcmp(what, "growth")) {
			answer = htcp_growth(a, b, c, &d);
			printf("%llu ", d);
		} else if (!strcmp(what, "recovery")) {
			/* Microseconds from beta * window back to window, one round trip at a time. */
			htcp_u32 window = htcp_backoff(a, c);
			htcp_u64 credit = 0;

			for (answer = 0; window < a; answer += b)
				window += htcp_growth(window, window, htcp_alpha(answer, c, b), &credit);
		} else
			return 1;
		printf("%llu\n", answer);
		fflush(stdout);
	}
	return 0;
}
