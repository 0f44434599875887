//! Sizes and offsets of `src/abi`, its constants and the lengths of its tables against the installed headers of
//! libfabric.
#![allow(unreachable_pub, reason = "the module of the library")]
#![allow(unsafe_code, reason = "the module of the library")]

#[path = "../../src/abi/mod.rs"]
#[allow(dead_code, reason = "layouts only")]
mod abi;

use std::{fmt::Write as _, mem::offset_of, process::Command};

use abi::*;

fn assert_that(text: &mut String, left: &str, right: u64) {
    writeln!(text, "_Static_assert((unsigned long)({left}) == {right}ul, \"{left}\");").unwrap();
}

/// Asserts the size of a structure and the offsets of members; `grows` where newer headers may add members at the end.
macro_rules! layout {
    ($text:ident, $grows:expr, $kind:ident { $($member:ident $(= $c:literal)?),* }) => {
        let relation = if $grows { ">=" } else { "==" };
        let size = size_of::<$kind>();
        let kind = stringify!($kind);
        writeln!($text, "_Static_assert(sizeof(struct {kind}) {relation} {size}, \"size of {kind}\");").unwrap();
        $(
            let name = [$($c,)? stringify!($member)][0].trim_start_matches("r#");
            assert_that(&mut $text, &format!("offsetof(struct {kind}, {name})"), offset_of!($kind, $member) as u64);
        )*
    };
}

fn attributes() -> String {
    let mut all = String::new();
    layout!(
        all,
        false,
        fi_info {
            next,
            caps,
            mode,
            addr_format,
            src_addrlen,
            dest_addrlen,
            src_addr,
            dest_addr,
            handle,
            tx_attr,
            rx_attr,
            ep_attr,
            domain_attr,
            fabric_attr,
            nic
        }
    );
    layout!(
        all,
        false,
        fi_tx_attr {
            caps,
            mode,
            op_flags,
            msg_order,
            comp_order,
            inject_size,
            size,
            iov_limit,
            rma_iov_limit,
            tclass
        }
    );
    layout!(all, false, fi_rx_attr { caps, mode, op_flags, msg_order, comp_order, size, iov_limit });
    layout!(
        all,
        false,
        fi_ep_attr {
            r#type,
            protocol,
            protocol_version,
            max_msg_size,
            msg_prefix_size,
            mem_tag_format,
            tx_ctx_cnt,
            rx_ctx_cnt,
            auth_key_size,
            auth_key
        }
    );
    layout!(
        all,
        true,
        fi_domain_attr {
            domain,
            name,
            threading,
            control_progress,
            data_progress,
            resource_mgmt,
            av_type,
            mr_mode,
            mr_key_size,
            cq_data_size,
            cq_cnt,
            ep_cnt,
            tx_ctx_cnt,
            rx_ctx_cnt,
            max_ep_tx_ctx,
            max_ep_rx_ctx,
            cntr_cnt,
            mr_iov_limit,
            caps,
            mode,
            auth_key,
            auth_key_size,
            max_err_data,
            mr_cnt,
            tclass
        }
    );
    layout!(all, false, fi_fabric_attr { fabric, name, prov_name, prov_version, api_version });
    layout!(all, false, fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set });
    layout!(all, false, fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set });
    layout!(all, false, fi_cntr_attr { events, wait_obj, wait_set, flags });
    layout!(all, true, fi_mr_attr { mr_iov, iov_count, access, offset, requested_key, context });
    layout!(all, false, fi_av_attr { r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags });
    all
}

fn objects() -> String {
    let mut all = String::new();
    layout!(all, false, fid { fclass, context, ops });
    layout!(all, false, fid_fabric { fid, ops, api_version });
    layout!(all, false, fid_domain { fid, ops, mr });
    layout!(all, false, fid_mr { fid, mem_desc, key });
    layout!(all, false, fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective });
    for one in ["fid_av", "fid_cq", "fid_eq", "fid_cntr"] {
        assert_that(&mut all, &format!("sizeof(struct {one})"), size_of::<fid_one>() as u64);
        assert_that(&mut all, &format!("offsetof(struct {one}, ops)"), offset_of!(fid_one, ops) as u64);
    }
    layout!(all, false, fi_msg { msg_iov, desc, iov_count, addr, context, data });
    layout!(all, false, fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data });
    layout!(all, false, fi_rma_iov { addr, len, key });
    layout!(all, false, fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data });
    layout!(all, false, fi_cq_tagged_entry { op_context, flags, len, buf, data, tag });
    layout!(
        all,
        true,
        fi_cq_err_entry {
            op_context,
            flags,
            len,
            buf,
            data,
            tag,
            olen,
            err,
            prov_errno,
            err_data,
            err_data_size
        }
    );
    layout!(all, false, fi_provider { version, fi_version, context, name, getinfo, fabric, cleanup });
    all
}

/// Members of the tables of functions, their number in `src`, and where the function that is offered stands.
fn tables() -> String {
    let mut all = String::new();
    let tables = [
        ("fi_ops", 6, "ops_set", 6),
        ("fi_ops_fabric", 6, "trywait", 5),
        ("fi_ops_domain", 11, "cntr_open", 5),
        ("fi_ops_mr", 3, "regattr", 3),
        ("fi_ops_av", 7, "lookup", 5),
        ("fi_ops_eq", 5, "sread", 4),
        ("fi_ops_cq", 7, "strerror", 7),
        ("fi_ops_cntr", 7, "wait", 5),
        ("fi_ops_ep", 7, "setopt", 3),
        ("fi_ops_cm", 9, "getname", 2),
        ("fi_ops_msg", 9, "injectdata", 9),
        ("fi_ops_tagged", 9, "injectdata", 9),
        ("fi_ops_rma", 9, "injectdata", 9),
        ("fi_ops_atomic", 13, "compwritevalid", 13),
        ("fi_ops_collective", 11, "barrier2", 11),
    ];
    for (table, count, member, place) in tables {
        assert_that(&mut all, &format!("offsetof(struct {table}, {member})"), place * 8);
        // Callers test the size before they use members that newer headers have.
        writeln!(all, "_Static_assert(sizeof(struct {table}) >= {}, \"{table}\");", (count + 1) * 8).unwrap();
    }
    all
}

macro_rules! constants {
    ($text:ident: $($name:ident)*) => {
        $(assert_that(&mut $text, stringify!($name), $name as u64);)*
    };
}

fn values() -> String {
    let mut all = String::new();
    constants!(all: FI_MSG FI_RMA FI_WRITE FI_REMOTE_READ FI_REMOTE_WRITE FI_FENCE FI_EACCES FI_ENOKEY FI_TAGGED FI_RECV FI_SEND FI_MULTI_RECV FI_OPT_ENDPOINT FI_OPT_MIN_MULTI_RECV FI_ENOPROTOOPT FI_REMOTE_CQ_DATA FI_PEEK FI_COMPLETION FI_INJECT
        FI_DELIVERY_COMPLETE FI_LOCAL_COMM FI_REMOTE_COMM FI_SOURCE FI_DIRECTED_RECV FI_CLAIM FI_SELECTIVE_COMPLETION
        FI_DISCARD FI_ADDR_UNSPEC FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_EP_UNSPEC FI_EP_RDM FI_PROTO_UNSPEC
        FI_THREAD_SAFE FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_RM_ENABLED FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE FI_READ FI_EVENT FI_WAIT_NONE FI_WAIT_UNSPEC
        FI_ORDER_RAW FI_ORDER_WAW FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_RMA_RAW FI_ORDER_RMA_WAW FI_EAGAIN FI_EINVAL FI_ENOSYS FI_ENOMSG FI_ENODATA FI_EOPNOTSUPP FI_EADDRINUSE FI_EADDRNOTAVAIL
        FI_ECONNRESET FI_ETIMEDOUT FI_ECANCELED FI_ENOMEM FI_ETOOSMALL FI_EAVAIL FI_ETRUNC FI_CLASS_FABRIC
        FI_CLASS_DOMAIN FI_CLASS_EP FI_CLASS_AV FI_CLASS_MR FI_CLASS_EQ FI_CLASS_CQ FI_CLASS_CNTR FI_ENABLE FI_GETOPSFLAG
        FI_SETOPSFLAG);
    all
}

#[test]
fn structures_tables_and_constants_are_those_of_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.c");
    let headers = [
        "stddef",
        "rdma/fabric",
        "rdma/fi_domain",
        "rdma/fi_endpoint",
        "rdma/fi_cm",
        "rdma/fi_tagged",
        "rdma/fi_rma",
        "rdma/fi_atomic",
        "rdma/fi_collective",
        "rdma/fi_eq",
        "rdma/fi_errno",
        "rdma/providers/fi_prov",
    ];
    let includes: String = headers.map(|header| format!("#include <{header}.h>\n")).concat();
    std::fs::write(&file, includes + &attributes() + &objects() + &tables() + &values()).unwrap();
    let output = Command::new("cc").args(["-std=gnu11", "-fsyntax-only"]).arg(&file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "apt-get install libfabric-dev (.ci/install test): {errors}");
}
