//! The screen: keys in, pages out. It restores the terminal when it is dropped.

use std::{io, time::Duration};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};

use super::{Board, page::Page};
use crate::output::wants_colours;

/// What the person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenEvent {
    /// To leave.
    Quit,
    /// To see something else.
    Redraw,
}

/// The terminal, in its alternate screen.
pub struct Screen {
    terminal: DefaultTerminal,
    page: Page,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// It is none.
    pub fn open() -> io::Result<Self> {
        let page = Page::new(wants_colours(&io::stdout()));
        Ok(Self { terminal: ratatui::try_init()?, page })
    }

    /// Draws the board.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, board: &Board) -> io::Result<()> {
        self.terminal.draw(|frame| self.page.draw(board, frame))?;
        Ok(())
    }

    /// Waits for a key.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<ScreenEvent>> {
        if !event::poll(timeout)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                // In raw mode Ctrl-C is a key.
                let interrupts =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupts { Some(ScreenEvent::Quit) } else { self.page.key(key.code) }
            }
            Event::Resize(..) => Some(ScreenEvent::Redraw),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
