/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Kernel declarations needed by a congestion control. Structures contain only
 * the members that are used, in any order: clang records each access by name
 * (preserve_access_index) and the loader relocates it to the offset in the
 * running kernel's BTF. No headers of a kernel or of libbpf are needed.
 */
#ifndef CLEARSTREAM_BPF_KERNEL_H
#define CLEARSTREAM_BPF_KERNEL_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define BY_NAME __attribute__((preserve_access_index))

/* Private memory of a congestion control is 104 bytes: include/net/inet_connection_sock.h */
#define CONGESTION_CONTROL_PRIVATE 13

struct sock;

struct inet_connection_sock {
	u64 icsk_ca_priv[CONGESTION_CONTROL_PRIVATE];
} BY_NAME;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 srtt_us;         /* smoothed round trip, eighths of a microsecond */
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 delivered;       /* delivered segments, including selectively acknowledged ones */
	u32 max_packets_out; /* maximum in flight in the last window */
	u8 is_cwnd_limited : 1;
} BY_NAME;

struct ack_sample {
	s32 rtt_us; /* negative: none */
} BY_NAME;

/* States of the sender: include/uapi/linux/tcp.h, enum tcp_ca_state. */
#define TCP_CA_OPEN 0

/* Any user may select it: include/net/tcp.h. */
#define TCP_CONG_NON_RESTRICTED 1

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 state);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*init)(struct sock *sk);
	u32 flags;
	char name[16];
};

/* The kernel's own slow start; returns the remaining acknowledgements. */
extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __attribute__((section(".ksyms")));

/* bpf-helpers(7); the number is that of include/uapi/linux/bpf.h. */
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;

/*
 * A bit field has no address, so its offset is relocated by name and the word
 * that contains it is read: llvm's BPF_FIELD_* of __builtin_preserve_field_info.
 */
#define FIELD_BYTE_OFFSET 0
#define FIELD_BYTE_SIZE 1
#define FIELD_LSHIFT_U64 4
#define FIELD_RSHIFT_U64 5

#define READ_BITS(structure, member) ({ \
	const void *place = (const void *)(structure) + \
		__builtin_preserve_field_info((structure)->member, FIELD_BYTE_OFFSET); \
	u64 word = 0; \
	asm volatile("" : "+r"(place)); /* keep the offset out of the load */ \
	switch (__builtin_preserve_field_info((structure)->member, FIELD_BYTE_SIZE)) { \
	case 1: word = *(const u8 *)place; break; \
	case 2: word = *(const unsigned short *)place; break; \
	case 4: word = *(const u32 *)place; break; \
	case 8: word = *(const u64 *)place; break; \
	} \
	word <<= __builtin_preserve_field_info((structure)->member, FIELD_LSHIFT_U64); \
	word >> __builtin_preserve_field_info((structure)->member, FIELD_RSHIFT_U64); \
})

#endif
