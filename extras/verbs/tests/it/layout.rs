//! Sizes and offsets of `src/abi` against the installed headers of rdma-core,
//! and the exported names against those of its libraries.
#![allow(unreachable_pub, reason = "the module of the library")]

#[path = "../../src/abi/mod.rs"]
#[allow(dead_code, reason = "layouts only")]
mod abi;

use std::{collections::BTreeSet, fmt::Write as _, mem::offset_of, process::Command};

use abi::*;

use crate::common::{c, library};

/// Asserts the size of a structure and the offsets of members. `c as rust`
/// where a member has another name here.
macro_rules! layout {
    ($text:ident, $kind:ident { $($member:ident),* } $($c:literal = $rust:ident),*) => {
        assert_size(&mut $text, stringify!($kind), size_of::<$kind>());
        $(assert_offset(&mut $text, stringify!($kind), stringify!($member), offset_of!($kind, $member));)*
        $(assert_offset(&mut $text, stringify!($kind), $c, offset_of!($kind, $rust));)*
    };
}

fn assert_size(text: &mut String, kind: &str, size: usize) {
    writeln!(text, "_Static_assert(sizeof(struct {kind}) == {size}, \"size of {kind}\");").unwrap();
}

fn assert_offset(text: &mut String, kind: &str, member: &str, offset: usize) {
    let assertion = format!("offsetof(struct {kind}, {member}) == {offset}");
    writeln!(text, "_Static_assert({assertion}, \"{kind}.{member}\");").unwrap();
}

fn objects(text: &mut String) {
    let mut all = String::new();
    layout!(all, ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path });
    layout!(
        all,
        ibv_context_ops {
            alloc_mw,
            bind_mw,
            dealloc_mw,
            poll_cq,
            req_notify_cq,
            post_srq_recv,
            post_send,
            post_recv
        }
    );
    layout!(all, ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat });
    layout!(all, ibv_pd { context, handle });
    layout!(all, ibv_mr { context, pd, addr, length, handle, lkey, rkey });
    layout!(all, ibv_comp_channel { context, fd, refcnt });
    layout!(all, ibv_cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed });
    layout!(all, ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed });
    layout!(
        all,
        ibv_qp {
            context,
            qp_context,
            pd,
            send_cq,
            recv_cq,
            srq,
            handle,
            qp_num,
            state,
            qp_type,
            mutex,
            cond,
            events_completed
        }
    );
    layout!(all, ibv_async_event { element, event_type });
    layout!(all, ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex });
    text.push_str(&all);
}

fn attributes(text: &mut String) {
    let mut all = String::new();
    layout!(all, ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data });
    layout!(all, ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all });
    layout!(all, ibv_ah_attr { grh, dlid, sl, is_global, port_num });
    layout!(
        all,
        ibv_qp_attr {
            qp_state,
            cur_qp_state,
            path_mtu,
            qp_access_flags,
            cap,
            ah_attr,
            alt_ah_attr,
            pkey_index,
            sq_draining,
            max_rd_atomic,
            max_dest_rd_atomic,
            port_num,
            timeout,
            retry_cnt,
            rate_limit
        }
    );
    layout!(all, ibv_srq_attr { max_wr, max_sge, srq_limit });
    layout!(all, ibv_srq_init_attr { srq_context, attr });
    layout!(
        all,
        ibv_device_attr {
            fw_ver,
            node_guid,
            sys_image_guid,
            max_mr_size,
            vendor_id,
            max_qp,
            max_qp_wr,
            device_cap_flags,
            max_sge,
            max_sge_rd,
            max_cqe,
            max_qp_rd_atom,
            max_qp_init_rd_atom,
            atomic_cap,
            max_srq,
            max_srq_wr,
            max_pkeys,
            phys_port_cnt
        }
    );
    layout!(all, ibv_sge { addr, length, lkey });
    layout!(all, ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, qp_type });
    layout!(all, ibv_recv_wr { wr_id, next, sg_list, num_sge });
    layout!(
        all,
        ibv_wc {
            wr_id,
            status,
            opcode,
            vendor_err,
            byte_len,
            imm_data,
            qp_num,
            src_qp,
            wc_flags,
            pkey_index,
            slid,
            sl,
            dlid_path_bits
        }
    );
    text.push_str(&all);
    // Extended structures grow: only the members that are used.
    for (member, offset) in [
        ("cap", offset_of!(ibv_qp_init_attr_ex, cap)),
        ("comp_mask", offset_of!(ibv_qp_init_attr_ex, comp_mask)),
        ("pd", offset_of!(ibv_qp_init_attr_ex, pd)),
    ] {
        assert_offset(text, "ibv_qp_init_attr_ex", member, offset);
    }
    for (member, offset) in [
        ("state", offset_of!(ibv_port_attr, state)),
        ("max_msg_sz", offset_of!(ibv_port_attr, max_msg_sz)),
        ("phys_state", offset_of!(ibv_port_attr, phys_state)),
        ("link_layer", offset_of!(ibv_port_attr, link_layer)),
        ("port_cap_flags2", offset_of!(ibv_port_attr, port_cap_flags2)),
    ] {
        assert_offset(text, "ibv_port_attr", member, offset);
    }
    // It grows at its beginning: distances from its end are the same.
    let back = offset_of!(verbs_context, context) - offset_of!(verbs_context, query_port);
    let distance = "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_port)";
    writeln!(text, "_Static_assert({distance} == {back}, \"query_port\");").unwrap();
    let back = offset_of!(verbs_context, context) - offset_of!(verbs_context, query_device_ex);
    let distance =
        "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_device_ex)";
    writeln!(text, "_Static_assert({distance} == {back}, \"query_device_ex\");").unwrap();
    let ports = offset_of!(ibv_device_attr_ex, phys_port_cnt_ex);
    assert_offset(text, "ibv_device_attr_ex", "phys_port_cnt_ex", ports);
    let back = size_of::<verbs_context>() - offset_of!(verbs_context, sz);
    let distance = "sizeof(struct verbs_context) - offsetof(struct verbs_context, sz)";
    writeln!(text, "_Static_assert({distance} == {back}, \"sz\");").unwrap();
}

fn of_the_connection_manager(text: &mut String) {
    let mut all = String::new();
    layout!(all, rdma_event_channel { fd });
    layout!(all, rdma_route { path_rec, num_paths } "addr.src_addr" = src, "addr.dst_addr" = dst,
        "addr.addr" = ib);
    layout!(
        all,
        rdma_cm_id {
            verbs,
            channel,
            context,
            qp,
            route,
            ps,
            port_num,
            event,
            send_cq_channel,
            send_cq,
            recv_cq_channel,
            recv_cq,
            srq,
            pd,
            qp_type
        }
    );
    layout!(
        all,
        rdma_conn_param {
            private_data,
            private_data_len,
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            srq,
            qp_num
        }
    );
    layout!(all, rdma_cm_event { id, listen_id, event, status } "param" = param);
    layout!(
        all,
        rdma_addrinfo {
            ai_flags,
            ai_family,
            ai_qp_type,
            ai_port_space,
            ai_src_len,
            ai_src_addr,
            ai_dst_addr,
            ai_route_len,
            ai_connect_len,
            ai_connect,
            ai_next
        }
    );
    text.push_str(&all);
}

#[test]
fn structures_are_those_of_the_installed_headers() {
    let mut text =
        "#include <stddef.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/verbs.h>\n".to_owned();
    objects(&mut text);
    attributes(&mut text);
    of_the_connection_manager(&mut text);
    text.push_str("int main(void) { return 0; }\n");
    assert!(text.matches("_Static_assert").count() > 150, "{text}");
    c::compile(&text, &[]);
}

fn exported(library: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only", library]).output().unwrap();
    assert!(output.status.success(), "{library}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| Some(line.split_whitespace().nth(2)?.split('@').next()?.to_owned());
    text.lines().filter_map(name).collect()
}

/// Names of the real libraries that receive none of our objects.
const REAL: [&str; 23] = [
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_event_type_str",
    "ibv_get_sysfs_path",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_sysfs_file",
    "ibv_register_driver",
    "ibv_static_providers",
    "ibv_wc_status_str",
    "rdma_event_str",
    "rdma_freeaddrinfo",
    "rdma_get_dst_port",
    "rdma_get_src_port",
    "rdma_getaddrinfo",
    // Called by providers with their own objects (IBVERBS_PRIVATE).
    "ibv_read_ibdev_sysfs_file",
    "ibv_get_fw_ver",
];

/// librspreload replaces functions of the C library for the whole process: a
/// call of this library to one of them would come back as an rsocket. Only
/// `read` of an eventfd(2), where threads may be cancelled, goes there.
#[test]
fn the_kernel_is_reached_by_names_that_librspreload_does_not_replace() {
    let found = Command::new("cc").arg("-print-file-name=rsocket/librspreload.so").output().unwrap();
    let replaced = exported(String::from_utf8(found.stdout).unwrap().trim());
    assert!(replaced.contains("recvmsg") && replaced.contains("poll"), "{replaced:?}");
    let output = Command::new("nm").args(["-D", "--undefined-only"]).arg(library()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| Some(line.split_whitespace().nth(1)?.split('@').next()?.to_owned());
    let used: BTreeSet<_> = text.lines().filter_map(name).collect();
    assert!(used.contains("syscall"), "{used:?}");
    let both: Vec<_> = used.intersection(&replaced).collect();
    assert_eq!(both, ["read"]);
}

#[test]
fn every_function_that_receives_an_object_is_replaced() {
    let ours = exported(library().to_str().unwrap());
    let mut left = BTreeSet::new();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        let found = Command::new("cc").arg(format!("-print-file-name={library}")).output().unwrap();
        let real = exported(String::from_utf8(found.stdout).unwrap().trim());
        assert!(real.contains("ibv_open_device") || real.contains("rdma_create_id"), "{library}");
        let public = |name: &&String| {
            (name.starts_with("ibv_") || name.starts_with("rdma_") || name.starts_with("_ibv_"))
                && !name.starts_with("ibv_cmd_")
        };
        left.extend(real.iter().filter(public).filter(|name| !ours.contains(*name)).cloned());
    }
    let unknown: Vec<_> = left.iter().filter(|name| !REAL.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
