/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Arithmetic of H-TCP, independent of the kernel: compiled into the BPF program
 * and into a test that compares it with a model in floating point.
 *
 * Implemented from the description by its authors: D. Leith and R. Shorten, "H-TCP:
 * TCP for high-speed and long-distance networks", PFLDnet 2004, and the
 * Internet-Draft draft-leith-tcp-htcp-06. Names as in the draft: Delta is the time
 * since the last congestion event, Delta_L = 1 s the length of the period in
 * which a flow behaves as standard TCP does.
 *
 * BPF has no floating point. Ratios (alpha, beta) are in units of 1/1024.
 */
#ifndef HTCP_ARITHMETIC_H
#define HTCP_ARITHMETIC_H

typedef unsigned int htcp_u32;
typedef unsigned long long htcp_u64;

#define HTCP_ONE 1024u                     /* 1.0 */
#define HTCP_BETA_MIN (HTCP_ONE / 2)      /* 0.5 */
#define HTCP_BETA_MAX (HTCP_ONE * 8 / 10) /* 0.8 */
#define HTCP_DELTA_L_US 1000000ull
/* Beyond ten minutes the increase is 96 000 times that of standard TCP: a larger value
 * changes nothing on any path, and products stay inside 64 bits. */
#define HTCP_DELTA_MAX_US 600000000ull
#define HTCP_RTT_REFERENCE_US 100000ull    /* of RTT scaling */
#define HTCP_WINDOW_MIN 2u                 /* segments, RFC 5681 section 3.1 */

/*
 * The increase function, in 1/1024:
 *   f = 1                                            for Delta <= Delta_L
 *   f = 1 + 10 (Delta - Delta_L) + ((Delta - Delta_L) / 2)^2   beyond, in seconds
 */
static inline htcp_u64 htcp_increase(htcp_u64 delta_us)
{
	htcp_u64 beyond_ms;

	if (delta_us <= HTCP_DELTA_L_US)
		return HTCP_ONE;
	if (delta_us > HTCP_DELTA_MAX_US)
		delta_us = HTCP_DELTA_MAX_US;
	beyond_ms = (delta_us - HTCP_DELTA_L_US) / 1000;
	return HTCP_ONE + HTCP_ONE * beyond_ms / 100 + HTCP_ONE * beyond_ms * beyond_ms / 4000000;
}

/*
 * Segments by which the window grows in a round trip, in 1/1024:
 *   alpha = 2 (1 - beta) max(1, f(Delta) * clamp(RTT / 100 ms, 0.1, 2))
 * RTT scaling makes the growth per second, not per round trip, the same on
 * short and long paths; the clamp bounds it as the authors' own implementation
 * does (a factor of 10 down, 2 up). It does not go below standard TCP's.
 */
static inline htcp_u64 htcp_alpha(htcp_u64 delta_us, htcp_u32 beta, htcp_u32 rtt_us)
{
	htcp_u64 rtt = rtt_us, factor;

	if (rtt < HTCP_RTT_REFERENCE_US / 10)
		rtt = HTCP_RTT_REFERENCE_US / 10;
	if (rtt > HTCP_RTT_REFERENCE_US * 2)
		rtt = HTCP_RTT_REFERENCE_US * 2;
	factor = htcp_increase(delta_us) * rtt / HTCP_RTT_REFERENCE_US;
	if (factor < HTCP_ONE)
		factor = HTCP_ONE;
	return 2 * (HTCP_ONE - beta) * factor / HTCP_ONE;
}

/*
 * Fraction of the window kept after a congestion event, in 1/1024:
 *   beta = 0.5                where throughput changed by more than 20 % since
 *                             the event before, or is unknown
 *   beta = RTTmin / RTTmax    otherwise, within [0.5, 0.8]
 * so that the queue of the path just drains, and drains in full where the
 * flow's fraction of the path's capacity is changing.
 */
static inline htcp_u32 htcp_beta(htcp_u32 rate_before, htcp_u32 rate, htcp_u32 rtt_min_us, htcp_u32 rtt_max_us)
{
	htcp_u64 change = rate > rate_before ? rate - rate_before : rate_before - rate;
	htcp_u64 beta;

	if (!rate_before || !rtt_max_us || 5 * change > rate_before)
		return HTCP_BETA_MIN;
	beta = (htcp_u64)HTCP_ONE * rtt_min_us / rtt_max_us;
	if (beta < HTCP_BETA_MIN)
		return HTCP_BETA_MIN;
	if (beta > HTCP_BETA_MAX)
		return HTCP_BETA_MAX;
	return beta;
}

/* Window after a congestion event: beta * window, at least two segments. */
static inline htcp_u32 htcp_backoff(htcp_u32 window, htcp_u32 beta)
{
	htcp_u64 left = (htcp_u64)window * beta / HTCP_ONE;

	return left < HTCP_WINDOW_MIN ? HTCP_WINDOW_MIN : left;
}

/*
 * Segments to add to the window for `acked` segments that arrived:
 * window += alpha * acked / window, the remainder kept in `credit` for the next call.
 */
static inline htcp_u32 htcp_growth(htcp_u32 window, htcp_u32 acked, htcp_u64 alpha, htcp_u64 *credit)
{
	htcp_u64 segment_cost = (htcp_u64)HTCP_ONE * (window ? window : 1);
	htcp_u64 earned = *credit + alpha * acked;
	htcp_u64 growth = earned / segment_cost;

	/* Never faster than slow start, whatever the formula says. */
	if (growth > acked) {
		*credit = 0;
		return acked;
	}
	*credit = earned - growth * segment_cost;
	return growth;
}

#endif
