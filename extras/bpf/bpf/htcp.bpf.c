// SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only
/*
 * H-TCP as a congestion control in BPF (struct_ops), registered as `bpf_htcp`:
 * a name that the kernel's own module, `htcp`, does not claim when it is loaded
 * later.
 *
 * The algorithm is in htcp_arithmetic.h. This file maintains its inputs: the
 * time of the last congestion event, the round-trip times since, and the
 * delivery rate right before it.
 */
#include "kernel.h"
#include "htcp_arithmetic.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct epoch {
	u64 since_us;    /* last congestion event */
	u32 beta;        /* effective back-off factor since then */
	u32 rtt_max_us;  /* longest smoothed round trip since then */
	u32 rate_before; /* segments per second right before it */
};

struct htcp {
	struct epoch now;
	struct epoch undo;        /* restored when the loss was spurious */
	u64 credit;               /* fraction of a segment not added yet */
	u64 round_start_us;
	u32 round_delivered;
	u32 rate;                 /* segments per second, smoothed */
	u32 rtt_min_us;
	u32 window_before;
	u8 open;                  /* no recovery in progress */
};

_Static_assert(sizeof(struct htcp) <= 8 * CONGESTION_CONTROL_PRIVATE, "private memory of a socket");

static inline struct htcp *private(struct tcp_sock *tp)
{
	return (struct htcp *)tp->inet_conn.icsk_ca_priv;
}

static inline u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

SEC("struct_ops")
void htcp_init(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = private(tp);
	u64 now = now_us();

	__builtin_memset(ca, 0, sizeof(*ca));
	ca->now.since_us = now;
	ca->now.beta = HTCP_BETA_MIN;
	ca->undo = ca->now;
	ca->round_start_us = now;
	ca->round_delivered = tp->delivered;
	ca->open = 1;
}

/* Measures the delivery rate over each round trip, for the bandwidth test. */
static inline void measure_rate(struct htcp *ca, u32 delivered, u32 srtt_us)
{
	u64 now = now_us();
	u64 elapsed_us = now - ca->round_start_us;
	u64 rate;

	if (elapsed_us < srtt_us || !elapsed_us)
		return;
	rate = (u64)(u32)(delivered - ca->round_delivered) * 1000000 / elapsed_us;
	ca->rate = ca->rate ? (3ull * ca->rate + rate) / 4 : rate;
	ca->round_start_us = now;
	ca->round_delivered = delivered;
}

SEC("struct_ops")
void htcp_pkts_acked(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	const struct ack_sample *sample = (const struct ack_sample *)arguments[1];
	struct htcp *ca = private(tp);
	u32 srtt_us = tp->srtt_us >> 3;

	if (!srtt_us)
		return;
	measure_rate(ca, tp->delivered, srtt_us);
	/* Round trips during recovery reflect retransmissions, not the path. */
	if (sample->rtt_us < 0 || !ca->open)
		return;
	if (!ca->rtt_min_us || srtt_us < ca->rtt_min_us)
		ca->rtt_min_us = srtt_us;
	if (srtt_us > ca->now.rtt_max_us)
		ca->now.rtt_max_us = srtt_us;
}

SEC("struct_ops")
void htcp_set_state(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];

	private(tp)->open = (u8)arguments[1] == TCP_CA_OPEN;
}

/* A congestion event: loss or an ECN mark. */
SEC("struct_ops")
u32 htcp_ssthresh(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = private(tp);
	u32 window = tp->snd_cwnd;

	ca->undo = ca->now;
	ca->window_before = window;
	ca->now.beta = htcp_beta(ca->now.rate_before, ca->rate, ca->rtt_min_us, ca->now.rtt_max_us);
	ca->now.rate_before = ca->rate;
	ca->now.rtt_max_us = 0;
	ca->now.since_us = now_us();
	ca->credit = 0;
	return htcp_backoff(window, ca->now.beta);
}

SEC("struct_ops")
void htcp_cong_avoid(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	u32 acked = (u32)arguments[2];
	struct htcp *ca = private(tp);
	u32 window = tp->snd_cwnd;
	u64 alpha;

	/* An unused window does not validate the path's capacity (RFC 7661). */
	if (window < tp->snd_ssthresh) {
		if (!READ_BITS(tp, is_cwnd_limited) && window >= 2 * tp->max_packets_out)
			return;
		acked = tcp_slow_start(tp, acked);
		window = tp->snd_cwnd;
		if (!acked)
			return;
	} else if (!READ_BITS(tp, is_cwnd_limited)) {
		return;
	}
	alpha = htcp_alpha(now_us() - ca->now.since_us, ca->now.beta, ca->rtt_min_us);
	window += htcp_growth(window, acked, alpha, &ca->credit);
	tp->snd_cwnd = window < tp->snd_cwnd_clamp ? window : tp->snd_cwnd_clamp;
}

/* Undo after a spurious loss (reordering, a late acknowledgement). */
SEC("struct_ops")
u32 htcp_undo_cwnd(u64 *arguments)
{
	struct tcp_sock *tp = (struct tcp_sock *)arguments[0];
	struct htcp *ca = private(tp);

	ca->now = ca->undo;
	return tp->snd_cwnd > ca->window_before ? tp->snd_cwnd : ca->window_before;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bpf_htcp = {
	.init = (void *)htcp_init,
	.ssthresh = (void *)htcp_ssthresh,
	.cong_avoid = (void *)htcp_cong_avoid,
	.set_state = (void *)htcp_set_state,
	.pkts_acked = (void *)htcp_pkts_acked,
	.undo_cwnd = (void *)htcp_undo_cwnd,
	/* Loaded by root for general use, including programs and network
	 * namespaces without privileges; it backs off on loss as reno does. */
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "bpf_htcp",
};
