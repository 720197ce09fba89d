//! The source of the text formats: one record after another out of a window, decoded into batches.
//!
//! The position is that behind the last record that was taken. A record is taken whole: in a file that is followed,
//! a last line without its end is left until the end comes.

use super::csv::{Csv, Split};
use super::follow::Watch;
use super::json::Json;
use super::window::{Fill, Fingerprint, Window, head};
use super::{Compression, CsvForm, Header, changed_error};
use crate::connector::decode::RowDecoder;
use crate::connector::pace::Pace;
use crate::connector::{
    Budget, DecodeError, POLL_BYTES_MAX, Polled, Position, Progress, RECORD_BYTES_MAX, Source, SourceRequest,
    SourceState, Waker, delivered, shown,
};
use crate::delta::Delta;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What the options say about the file.
pub(super) struct Settings {
    pub(super) path: String,
    pub(super) compression: Compression,
    /// How CSV is written; `None` for JSON.
    pub(super) form: Option<CsvForm>,
    pub(super) follow: bool,
    pub(super) rate: Option<f64>,
}

/// The stored position.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Mark {
    /// Decompressed bytes taken.
    offset: u64,
    /// The number of the next line, from 1.
    line: u64,
    /// What the file starts with.
    head: Fingerprint,
    /// What stands before the offset.
    tail: Fingerprint,
    /// Whether the end of a file that is not followed was reached.
    finished: bool,
}

enum Lines {
    Csv(Csv),
    Json(Json),
}

/// A record, or why there is none.
enum Step {
    /// A record of so many bytes was taken.
    Taken(usize),
    /// There is none now.
    Idle,
    /// There is none any more.
    End,
}

struct TextSource {
    path: String,
    window: Window,
    lines: Lines,
    rows: RowDecoder,
    errors: Vec<DecodeError>,
    mark: Mark,
    watch: Option<Watch>,
    pace: Option<Pace>,
    delivered: u64,
    at_end: bool,
    /// A record that is too long is being passed over: what is shown of it.
    passing: Option<String>,
    failure: Option<Error>,
}

/// Opens a CSV or JSON file.
pub(super) fn open(settings: Settings, request: &SourceRequest<'_>) -> Result<Box<dyn Source>> {
    let columns = delivered(request)?;
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let lines = match settings.form {
        Some(form) => {
            let count = request
                .columns
                .iter()
                .filter(|column| column.generated.is_none())
                .count();
            let places = request
                .projection
                .map_or_else(|| (0..count).collect(), <[usize]>::to_vec);
            Lines::Csv(Csv::new(form, names, places))
        }
        None => Lines::Json(Json::new(names)),
    };
    // Watching starts before anything is read, so that no growth falls between the two.
    let watch = settings.follow.then(|| Watch::new(&settings.path));
    let window = Window::open(&settings.path, settings.compression)?;
    let stored: Option<Mark> = request.position.map(Position::read).transpose()?;
    if let Some(stored) = &stored {
        head(&settings.path, Some(stored.head))?;
    }
    let head = head(&settings.path, None)?;
    let tail = window.tail();
    let mut source = TextSource {
        path: settings.path,
        window,
        lines,
        rows: RowDecoder::new(&columns),
        errors: Vec::new(),
        mark: Mark {
            offset: 0,
            line: 1,
            head,
            tail,
            finished: false,
        },
        watch,
        pace: settings.rate.map(Pace::new),
        delivered: 0,
        at_end: false,
        passing: None,
        failure: None,
    };
    source.prepare()?;
    if let Some(stored) = stored {
        // A position from before the header was there is still good: the header was passed over just now.
        if stored.offset > source.window.offset() {
            source.window.skip_to(stored.offset, stored.tail)?;
            source.mark = Mark { head, ..stored };
        }
        source.mark.finished = stored.finished;
    }
    Ok(Box::new(source))
}

impl TextSource {
    /// Passes over a byte order mark and learns from the first record where the columns are, once it is there.
    fn prepare(&mut self) -> Result<()> {
        if self.window.offset() == 0 {
            while self.window.bytes().len() < 3 && self.window.fill()? == Fill::Grew {}
            if self.window.bytes().starts_with(b"\xef\xbb\xbf") {
                self.window.take(3);
            }
        }
        while let Lines::Csv(csv) = &mut self.lines {
            if csv.is_ready() {
                break;
            }
            match csv.split(self.window.bytes(), self.at_end) {
                Split::Record { bytes, lines } => {
                    if csv.learn(self.window.bytes())? == Header::Names {
                        self.window.take(bytes);
                        self.mark.line += lines;
                    }
                }
                Split::Blank { bytes } if bytes > 0 => {
                    self.window.take(bytes);
                    self.mark.line += 1;
                }
                Split::Blank { .. } => break,
                Split::Unclosed => {
                    return Err(self.first_line_error("unterminated CSV quoted field"));
                }
                Split::Part if self.window.bytes().len() > RECORD_BYTES_MAX => {
                    return Err(self.first_line_error("it is too long"));
                }
                Split::Part => match self.window.fill()? {
                    Fill::Grew => {}
                    Fill::End if self.watch.is_some() => break,
                    Fill::End => self.at_end = true,
                },
            }
        }
        self.settle();
        Ok(())
    }

    fn first_line_error(&self, problem: &str) -> Error {
        Error::external(
            "22P04",
            format!("the first line of file \"{}\" cannot be read: {problem}", self.path),
        )
    }

    /// Notes that everything taken so far is whole records.
    fn settle(&mut self) {
        self.mark.offset = self.window.offset();
        self.mark.tail = self.window.tail();
    }

    fn is_ready(&self) -> bool {
        match &self.lines {
            Lines::Csv(csv) => csv.is_ready(),
            Lines::Json(_) => true,
        }
    }

    /// Takes the next record, if there is one.
    fn step(&mut self) -> Result<Step> {
        if !self.is_ready() {
            self.prepare()?;
            if !self.is_ready() {
                return Ok(if self.at_end { Step::End } else { Step::Idle });
            }
        }
        loop {
            if self.passing.is_some() {
                match self.pass_over()? {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            let bytes = self.window.bytes();
            if bytes.is_empty() && self.at_end {
                return Ok(Step::End);
            }
            let split = match &mut self.lines {
                Lines::Csv(csv) => csv.split(bytes, self.at_end),
                Lines::Json(_) => Json::split(bytes, self.at_end),
            };
            match split {
                Split::Record { bytes, lines } if bytes > RECORD_BYTES_MAX => {
                    let record = shown(&self.window.bytes()[..bytes]);
                    self.refuse(record, format!("the record is longer than {RECORD_BYTES_MAX} bytes"));
                    self.window.take(bytes);
                    self.mark.line += lines;
                    return Ok(Step::Taken(bytes));
                }
                Split::Record { bytes, lines } => {
                    self.decode(bytes);
                    self.window.take(bytes);
                    self.mark.line += lines;
                    return Ok(Step::Taken(bytes));
                }
                Split::Blank { bytes } => {
                    self.window.take(bytes);
                    self.mark.line += 1;
                }
                Split::Unclosed => return Ok(Step::Taken(self.take_unclosed())),
                Split::Part if bytes.len() > RECORD_BYTES_MAX => self.start_passing(),
                Split::Part => match self.window.fill()? {
                    Fill::Grew => {}
                    Fill::End if self.watch.is_some() => return Ok(Step::Idle),
                    Fill::End => self.at_end = true,
                },
            }
        }
    }

    fn decode(&mut self, bytes: usize) {
        let record = &self.window.bytes()[..bytes];
        let failure = match &mut self.lines {
            Lines::Csv(csv) => csv.decode(record, &mut self.rows),
            Lines::Json(json) => json.decode(record, &mut self.rows),
        };
        match failure {
            Some(message) => {
                let record = shown(record.trim_ascii_end());
                self.refuse(record, message);
            }
            None => self.delivered += 1,
        }
    }

    /// Lists the record of the current line as undecodable.
    fn refuse(&mut self, record: String, message: String) {
        self.errors.push(DecodeError {
            position: format!("line {}", self.mark.line),
            record,
            message,
        });
    }

    /// Lists the line that opens a quote which is never closed, and goes on behind it.
    fn take_unclosed(&mut self) -> usize {
        let bytes = self.window.bytes();
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len(), |end| end + 1);
        let record = shown(bytes[..end].trim_ascii_end());
        self.refuse(record, "unterminated CSV quoted field".to_owned());
        self.window.take(end);
        self.mark.line += 1;
        end
    }

    fn start_passing(&mut self) {
        self.settle();
        self.passing = Some(shown(self.window.bytes()));
    }

    /// Passes over the rest of a line that is too long. The mark stays before it until its end is found.
    fn pass_over(&mut self) -> Result<Option<Step>> {
        let bytes = self.window.bytes();
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let there = end.unwrap_or(bytes.len());
        self.window.take(there);
        if end.is_none() && !self.at_end {
            match self.window.fill()? {
                Fill::Grew => {}
                Fill::End if self.watch.is_some() => return Ok(Some(Step::Idle)),
                Fill::End => self.at_end = true,
            }
            return Ok(None);
        }
        let record = self.passing.take().unwrap_or_default();
        self.refuse(record, format!("the record is longer than {RECORD_BYTES_MAX} bytes"));
        self.mark.line += 1;
        Ok(Some(Step::Taken(there)))
    }

    /// Takes records until the budget is used up or there are none.
    fn read(&mut self, rows_max: usize, bytes_max: usize) -> Result<SourceState> {
        let (mut rows, mut bytes) = (0, 0);
        let mut state = SourceState::More;
        while rows < rows_max && (rows == 0 || bytes < bytes_max) {
            match self.step() {
                Ok(Step::Taken(length)) => {
                    rows += 1;
                    bytes += length;
                }
                Ok(Step::End) => {
                    self.mark.finished = true;
                    state = SourceState::Finished;
                    break;
                }
                Ok(Step::Idle) => {
                    state = self.rest()?;
                    break;
                }
                Err(error) => {
                    // The rows before it are delivered first; the next poll reports it.
                    self.failure = Some(error);
                    break;
                }
            }
        }
        if self.passing.is_none() {
            self.settle();
        }
        if let Some(pace) = &mut self.pace {
            pace.took(rows);
        }
        Ok(state)
    }

    /// At the end of a file that is followed: checks that it is still the one, and waits.
    fn rest(&mut self) -> Result<SourceState> {
        let there = self.window.offset() + self.window.bytes().len() as u64;
        let watch = self.watch.as_mut().expect("only a followed file is rested at");
        match watch.check(there) {
            Ok(()) => Ok(SourceState::Idle {
                retry_at: Some(watch.next_check()),
            }),
            Err(how) => {
                self.failure = Some(changed_error(&self.path, how));
                Ok(SourceState::More)
            }
        }
    }
}

impl Source for TextSource {
    fn poll(&mut self, budget: Budget) -> Result<Polled> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let nothing = |state| Polled {
            delta: Delta::new(),
            errors: Vec::new(),
            state,
        };
        if self.mark.finished {
            return Ok(nothing(SourceState::Finished));
        }
        let now = Instant::now();
        if let Some(retry_at) = self.watch.as_ref().and_then(|watch| watch.still_idle(now)) {
            return Ok(nothing(SourceState::Idle {
                retry_at: Some(retry_at),
            }));
        }
        let mut rows_max = budget.rows_max.max(1);
        if let Some(pace) = &mut self.pace {
            let allowed = pace.allowed(now);
            if allowed == 0 {
                return Ok(nothing(SourceState::Idle {
                    retry_at: Some(pace.next()),
                }));
            }
            rows_max = rows_max.min(allowed);
        }
        let mut state = self.read(rows_max, budget.bytes_max.min(POLL_BYTES_MAX))?;
        if let (SourceState::More, Some(pace), None) = (state, &self.pace, &self.failure)
            && rows_max < budget.rows_max
        {
            state = SourceState::Idle {
                retry_at: Some(pace.next()),
            };
        }
        let delta = Delta::from(self.rows.finish()?);
        Ok(Polled {
            delta,
            errors: std::mem::take(&mut self.errors),
            state,
        })
    }

    fn position(&self) -> Position {
        Position::of(&self.mark)
    }

    fn progress(&self) -> Progress {
        let total = std::fs::metadata(&self.path).ok().map(|metadata| metadata.len());
        let waiting = self.window.bytes().len() as u64;
        let lag = total.map(|total| total.saturating_sub(self.window.raw_read().saturating_sub(waiting)));
        Progress {
            position: format!("line {}", self.mark.line),
            total,
            lag: if self.mark.finished { Some(0) } else { lag },
            unit: "bytes",
            rows: self.delivered,
        }
    }

    fn wake_by(&mut self, waker: Waker) {
        if let Some(watch) = &mut self.watch {
            watch.wake_by(waker);
        }
    }
}
