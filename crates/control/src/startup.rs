//! Time limits of an agent's start, and progress messages meanwhile.

use std::time::{Duration, Instant};

use crate::ssh::Login;

/// Maximum time for ssh to connect and log in: a person may be typing a password, and sshd allows 120 s for
/// that by default (sshd_config(5), LoginGraceTime). A child that exits is detected at once.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(125);
/// Maximum wait for an agent's `Hello` after login: no person is involved.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Waits of one step that are reported. An agent's ends at the second.
const NOTICES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// Pending step of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStep {
    /// ssh is connecting and logging in.
    Login,
    /// ssh has logged in, or no ssh is involved: the agent is starting.
    Agent,
}

/// Start that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartDelay {
    /// Pending step.
    pub step: StartStep,
    /// Time that the step has taken, rounded down to 2 or 30 s.
    pub elapsed: Duration,
    /// Process that was started: ssh, or the agent.
    pub pid: u32,
}

/// Called when a step has taken 2 s, and again at 30 s; returns whether the delay was reported. Until it was, it is
/// called again: a line would disturb someone typing a password.
pub type OnStart<'a> = &'a mut dyn FnMut(StartDelay) -> bool;

/// State of the start of an agent that is a child.
pub(crate) struct Startup<'a> {
    through_ssh: bool,
    pid: u32,
    started: Instant,
    reported: Option<(StartStep, Duration)>,
    on_start: OnStart<'a>,
}

impl<'a> Startup<'a> {
    pub(crate) fn new(through_ssh: bool, pid: u32, now: Instant, on_start: OnStart<'a>) -> Self {
        Self { through_ssh, pid, started: now, reported: None, on_start }
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
        let is_over = step == StartStep::Agent && elapsed >= AGENT_TIMEOUT;
        if let Some(due) = NOTICES.into_iter().rfind(|notice| elapsed >= *notice)
            && !is_over
            && self.reported != Some((step, due))
            && (self.on_start)(StartDelay { step, elapsed: due, pid: self.pid })
        {
            self.reported = Some((step, due));
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PID: u32 = 7;

    fn delay(step: StartStep, seconds: u64) -> StartDelay {
        StartDelay { step, elapsed: Duration::from_secs(seconds), pid: PID }
    }

    #[test]
    fn each_step_is_reported_at_2_and_30_s_and_only_the_agents_has_the_short_limit() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut shown = Vec::new();
        let mut on_start = |delay| {
            shown.push(delay);
            true
        };
        let mut startup = Startup::new(true, PID, start, &mut on_start);
        for seconds in [0, 1, 2, 3, 29, 30, 60, 120] {
            assert!(!startup.is_over(None, at(seconds)), "a person may be typing");
        }
        let login = Some(Login { at: at(120), address: None });
        for seconds in [120, 121, 122, 149] {
            assert!(!startup.is_over(login, at(seconds)));
        }
        assert!(startup.is_over(login, at(150)));
        assert_eq!(
            shown,
            [delay(StartStep::Login, 2), delay(StartStep::Login, 30), delay(StartStep::Agent, 2)]
        );
    }

    #[test]
    fn a_delay_that_was_held_back_is_reported_later() {
        let start = Instant::now();
        let prompting = Cell::new(true);
        let mut shown = Vec::new();
        let mut on_start = |delay| {
            shown.extend((!prompting.get()).then_some(delay));
            !prompting.get()
        };
        let mut startup = Startup::new(true, PID, start, &mut on_start);
        for seconds in [2, 3, 4, 5] {
            prompting.set(seconds < 4);
            assert!(!startup.is_over(None, start + Duration::from_secs(seconds)));
        }
        assert_eq!(shown, [delay(StartStep::Login, 2)]);
    }

    #[test]
    fn without_ssh_only_the_agent_is_waited_for() {
        let start = Instant::now();
        let mut shown = Vec::new();
        let mut on_start = |delay| {
            shown.push(delay);
            true
        };
        let mut startup = Startup::new(false, PID, start, &mut on_start);
        assert!(!startup.is_over(None, start + Duration::from_secs(1)));
        assert!(!startup.is_over(None, start + Duration::from_secs(29)));
        assert!(startup.is_over(None, start + Duration::from_secs(30)));
        assert_eq!(shown, [delay(StartStep::Agent, 2)]);
    }
}
