//! Attributes of an interface: by netlink on this machine, files of a directory.

use clearstream_schema::plan::{LinkAttribute, Value};

use super::{
    Family,
    file::File,
    kernel::{check_permitted, present, refused, route_socket},
};
use crate::{Fault, Host, Needed, Target as _, texts::Form};

pub(super) struct Link<'a> {
    pub(super) interface: &'a str,
    pub(super) attribute: LinkAttribute,
}

impl Link<'_> {
    /// The file of a directory; `None` where netlink has it.
    fn file(&self, host: &Host) -> Result<Option<String>, Fault> {
        if host.is_live() {
            return Ok(None);
        }
        let name = match self.attribute {
            LinkAttribute::Mtu => "mtu",
            LinkAttribute::TransmitQueueLength => "tx_queue_len",
        };
        let path = format!("sys/class/net/{}/{name}", self.interface);
        File { path: &path }.file()?;
        Ok(Some(path))
    }

    fn number(value: &Value) -> Result<u32, Fault> {
        if let Value::Number(number) = value {
            return Ok(*number);
        }
        let text = value.to_string();
        let invalid = |_| Fault::Invalid { reason: format!("\"{text}\" is not a whole number") };
        text.trim().parse().map_err(invalid)
    }
}

impl Family for Link<'_> {
    /// A name of an interface is no path.
    fn is_permitted(&self) -> Result<bool, Fault> {
        Ok(true)
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        if let Some(file) = self.file(host)? {
            let number = |text: String| text.parse().map_or(Value::Text(text), Value::Number);
            return Ok(host.files().read(&file)?.map(number));
        }
        let found = present(route_socket()?.interface(self.interface))?;
        Ok(found.map(|found| {
            Value::Number(match self.attribute {
                LinkAttribute::Mtu => found.mtu_bytes,
                LinkAttribute::TransmitQueueLength => found.transmit_queue_count,
            })
        }))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        if let Some(file) = self.file(host)? {
            return host.files().write(&file, value);
        }
        let (number, mut socket) = (Self::number(value)?, route_socket()?);
        let result = match self.attribute {
            LinkAttribute::Mtu => socket.set_mtu(self.interface, number),
            LinkAttribute::TransmitQueueLength => socket.set_transmit_queue(self.interface, number),
        };
        result.map_err(refused(value))
    }

    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        if let Some(file) = self.file(host)? {
            return host.files().check(&file);
        }
        Self::number(value)?;
        check_permitted()
    }

    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        Form::Tokens.is_same(wanted, live)
    }

    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        host.gone_interface(self.interface)
    }
}
