//! Time limits of an agent's start, and progress messages meanwhile.

use std::time::{Duration, Instant};

use crate::ssh::Login;

/// Maximum time for ssh to connect and log in: a person may be typing a password, and sshd allows 120 s for
/// that by default (sshd_config(5), LoginGraceTime). A child that exits is detected at once.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(125);
/// Maximum wait for an agent's `Hello` after login: no person is involved.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the wait for an agent is reported.
const AGENT_NOTICE: Duration = Duration::from_secs(2);
/// Delay before the wait for a login is reported: longer than the agent's, since a line would disturb someone
/// typing.
const LOGIN_NOTICE: Duration = Duration::from_secs(10);

/// Pending step of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStep {
    /// ssh is connecting and logging in.
    Login,
    /// ssh has logged in, or no ssh is involved: the agent is starting.
    Agent,
}

/// Called with the pending step, once for each step that takes long.
pub type OnStart<'a> = &'a mut dyn FnMut(StartStep);

/// State of the start of an agent that is a child.
pub(crate) struct Startup<'a> {
    through_ssh: bool,
    started: Instant,
    shown: Option<StartStep>,
    on_start: OnStart<'a>,
}

impl<'a> Startup<'a> {
    pub(crate) fn new(through_ssh: bool, now: Instant, on_start: OnStart<'a>) -> Self {
        Self { through_ssh, started: now, shown: None, on_start }
    }

    /// Reports steps that take long; true when the agent's time is over. Over a shared connection ssh reports
    /// no login: then the login timeout, which is the session's own limit, is the only one.
    pub(crate) fn is_over(&mut self, login: Option<Login>, now: Instant) -> bool {
        let (step, since) = match (self.through_ssh, login) {
            (true, None) => (StartStep::Login, self.started),
            (true, Some(login)) => (StartStep::Agent, login.at),
            (false, _) => (StartStep::Agent, self.started),
        };
        let elapsed = now.saturating_duration_since(since);
        let notice = if step == StartStep::Login { LOGIN_NOTICE } else { AGENT_NOTICE };
        if elapsed >= notice && self.shown != Some(step) {
            self.shown = Some(step);
            (self.on_start)(step);
        }
        step == StartStep::Agent && elapsed >= AGENT_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_reported_once_and_only_the_agents_has_the_short_limit() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut shown = Vec::new();
        let mut on_start = |step| shown.push(step);
        let mut startup = Startup::new(true, start, &mut on_start);
        for seconds in [0, 9, 10, 60, 120] {
            assert!(!startup.is_over(None, at(seconds)), "a person may be typing");
        }
        let login = Some(Login { at: at(120), address: None });
        for seconds in [120, 121, 122, 149] {
            assert!(!startup.is_over(login, at(seconds)));
        }
        assert!(startup.is_over(login, at(150)));
        assert_eq!(shown, [StartStep::Login, StartStep::Agent]);
    }

    #[test]
    fn without_ssh_only_the_agent_is_waited_for() {
        let start = Instant::now();
        let mut shown = Vec::new();
        let mut on_start = |step| shown.push(step);
        let mut startup = Startup::new(false, start, &mut on_start);
        assert!(!startup.is_over(None, start + Duration::from_secs(1)));
        assert!(startup.is_over(None, start + Duration::from_secs(30)));
        assert_eq!(shown, [StartStep::Agent]);
    }
}
