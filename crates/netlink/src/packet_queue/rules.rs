//! The nftables rules that queue what a bridge forwards, set without `nft`.

use std::io;

use super::{
    NLM_F_ACK, NLM_F_REQUEST,
    message::{Attributes, Batch},
    open_socket,
};

const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NFNL_SUBSYS_NONE: u16 = 0;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

const TABLE: &str = "clearstream";
const CHAIN: &str = "forward";
const NF_INET_FORWARD: u32 = 2;
const NFT_REG_1: u32 = 1;
const NFT_META_MARK: u32 = 3;
const NFT_CMP_EQ: u32 = 0;

/// Queues, in the calling thread's network namespace, what bridges forward of IPv4 and IPv6: queue 0 receives
/// packets whose mark has no bit of `second_mark`, queue 1 the others. Without a reader they are dropped.
///
/// Bridged packets traverse the rules of their family where
/// `net.bridge.bridge-nf-call-iptables` and `-ip6tables` are on.
pub fn queue_forwarded(second_mark: u32) -> io::Result<()> {
    // Kernels have the expression (nft_queue), the target (xt_NFQUEUE through
    // nft_compat), or both.
    rules(second_mark, queue_expression).or_else(|_| rules(second_mark, queue_target))
}

type Queue = fn(&mut dyn Attributes, u16);

fn rules(second_mark: u32, queue: Queue) -> io::Result<()> {
    let socket = open_socket()?;
    let (acknowledged, changed) = (NLM_F_REQUEST | NLM_F_ACK, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE);
    let mut batch = Batch::default();
    edge(&mut batch, NFNL_MSG_BATCH_BEGIN);
    let mut count = 0;
    for family in [NFPROTO_IPV4, NFPROTO_IPV6] {
        batch.message((NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE), changed, family, 0, |out| {
            out.text(1, TABLE);
        });
        batch.message((NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN), changed, family, 0, |out| {
            // NFTA_CHAIN_TABLE, _NAME, _HOOK (HOOKNUM, PRIORITY), _TYPE.
            out.text(1, TABLE);
            out.text(3, CHAIN);
            out.nest(4, &mut |hook| {
                hook.number(1, NF_INET_FORWARD);
                hook.number(2, 0);
            });
            out.text(7, "filter");
        });
        for (number, mark) in [(0, 0), (1, second_mark)] {
            let flags = acknowledged | NLM_F_CREATE | NLM_F_APPEND;
            batch.message((NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWRULE), flags, family, 0, |out| {
                // NFTA_RULE_TABLE, _CHAIN, _EXPRESSIONS.
                out.text(1, TABLE);
                out.text(2, CHAIN);
                out.nest(4, &mut |list| {
                    mark_is(list, second_mark, mark);
                    queue(list, number);
                });
            });
        }
        count += 4;
    }
    edge(&mut batch, NFNL_MSG_BATCH_END);
    batch.send(&socket, count)
}

/// The begin or the end of a transaction of nf_tables.
fn edge(batch: &mut Batch, kind: u16) {
    batch.message((NFNL_SUBSYS_NONE, kind), NLM_F_REQUEST, 0, NFNL_SUBSYS_NFTABLES, |_| {});
}

/// One expression: NFTA_LIST_ELEM with NFTA_EXPR_NAME and NFTA_EXPR_DATA.
fn expression(list: &mut dyn Attributes, name: &str, write: &mut dyn FnMut(&mut dyn Attributes)) {
    list.nest(1, &mut |element| {
        element.text(1, name);
        element.nest(2, write);
    });
}

/// `meta mark & mask == value`
fn mark_is(list: &mut dyn Attributes, mask: u32, value: u32) {
    expression(list, "meta", &mut |data| {
        data.number(2, NFT_META_MARK);
        data.number(1, NFT_REG_1);
    });
    expression(list, "bitwise", &mut |data| {
        // NFTA_BITWISE_SREG, _DREG, _LEN, _MASK, _XOR; registers are in host order.
        data.number(1, NFT_REG_1);
        data.number(2, NFT_REG_1);
        data.number(3, 4);
        data.nest(4, &mut |value| value.bytes(1, &mask.to_ne_bytes()));
        data.nest(5, &mut |value| value.bytes(1, &[0; 4]));
    });
    expression(list, "cmp", &mut |data| {
        data.number(1, NFT_REG_1);
        data.number(2, NFT_CMP_EQ);
        data.nest(3, &mut |data| data.bytes(1, &value.to_ne_bytes()));
    });
}

/// NFTA_QUEUE_NUM, _TOTAL.
fn queue_expression(list: &mut dyn Attributes, number: u16) {
    expression(list, "queue", &mut |data| {
        data.bytes(1, &number.to_be_bytes());
        data.bytes(2, &1u16.to_be_bytes());
    });
}

/// NFTA_TARGET_NAME, _REV, _INFO: struct xt_NFQ_info_v3 (number, total, flags), padded to the alignment of
/// targets.
fn queue_target(list: &mut dyn Attributes, number: u16) {
    expression(list, "target", &mut |data| {
        let mut info = [0; 8];
        info[..2].copy_from_slice(&number.to_ne_bytes());
        info[2..4].copy_from_slice(&1u16.to_ne_bytes());
        data.text(1, "NFQUEUE");
        data.number(2, 3);
        data.bytes(3, &info);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain for a missing table: the kernel points at the attribute that names it.
    #[test]
    fn root_a_rejected_message_names_its_attribute() {
        let host = clearstream_testkit::namespace::Host::new();
        let refused = host.run(|| {
            let mut batch = Batch::default();
            edge(&mut batch, NFNL_MSG_BATCH_BEGIN);
            let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
            batch.message((NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWCHAIN), flags, NFPROTO_IPV4, 0, |out| {
                out.text(3, CHAIN);
                out.text(1, "nowhere");
            });
            edge(&mut batch, NFNL_MSG_BATCH_END);
            batch.send(&open_socket().unwrap(), 1)
        });
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().ends_with(": attribute 1 of the request"), "{error}");
    }
}
