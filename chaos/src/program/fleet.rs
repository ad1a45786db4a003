//! The workers' processes: each life has a fate, which the seed repeats.

use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::place::{Books, Diary, Place, WorldKind};

const SIGKILL: i32 = 9;

/// The workers of one world, and those of a world with programs of two builds.
pub(crate) const WORKERS: usize = 3;
const MIXED_WORKERS: usize = 4;

/// The part of the kills in which all workers are of the old build, when there is one.
const OLD_ALONE: u32 = 5;

/// How often the processes are looked at.
const TICK: Duration = Duration::from_millis(2);

/// One of so many lives is frozen once.
const FROZEN_EVERY: u32 = 7;

/// How long a life that should kill itself may take. Then it is killed from outside.
const POINT_PATIENCE: Duration = Duration::from_secs(5);

/// How long a worker may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// How a life ends, and what happens to it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    end: End,
    /// After how long it is frozen, and for how long.
    freeze: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Never,
    /// It kills itself at this commit point.
    Point(u64),
    /// It is killed when this time has passed.
    After(Duration),
}

impl Fate {
    const LONG: Self = Self { end: End::Never, freeze: None };

    /// The fate of a life; a frozen one sleeps for longer than its session.
    fn of(seed: u64, life: u32, session: Duration) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed ^ (u64::from(life) << 20));
        let mut millis = |from, to| Duration::from_millis(chance.u64(from..to));
        if life % FROZEN_EVERY == 2 {
            let (after, time) = (millis(30, 400), session + millis(300, 1_400));
            // Long enough that the one that woke does what it can.
            return Self { end: End::After(after + time + millis(200, 900)), freeze: Some((after, time)) };
        }
        let after = millis(20, 700);
        let end = if chance.bool() { End::Point(chance.u64(1..160)) } else { End::After(after) };
        Self { end, freeze: None }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((after, time)) = self.freeze {
            write!(f, "frozen after {after:?} for {time:?}, ")?;
        }
        match self.end {
            End::Never => write!(f, "lives"),
            End::Point(point) => write!(f, "dies at commit point {point}"),
            End::After(time) => write!(f, "killed after {time:?}"),
        }
    }
}

/// Which build of this program a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Old,
    New,
}

/// Which builds the workers are of, one stage after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All are old: they make the schema.
    OldAlone,
    /// Half of them are old.
    Mixed,
    /// The new ones have been told to stop, and old ones take their places.
    RolledBack,
}

/// A process, which dies with its owner.
#[derive(Debug)]
struct Process {
    child: Child,
    life: u32,
    build: Build,
    /// It has been told to stop.
    is_leaving: bool,
    fate: Fate,
    born: Timestamp,
    frozen: Option<Timestamp>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What happened to the fleet so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) kills: u32,
    pub(crate) at_points: u32,
    pub(crate) stops: u32,
    pub(crate) lives: u32,
    /// How many workers of the new build there are now.
    pub(crate) new_workers: usize,
    /// Every life that was to be killed has been.
    pub(crate) is_calm: bool,
}

/// All workers, watched by a thread of their own: whoever writes to the file may have to wait for a frozen
/// worker, which must be woken meanwhile. The workers die with that thread.
pub(crate) struct Fleet {
    // Declared first, so that the channel is closed before the thread is awaited.
    asks: Option<Sender<Ask>>,
    thread: Option<JoinHandle<Result<()>>>,
    told: Arc<Mutex<Losses>>,
    size: usize,
}

/// Something that the thread does while it watches.
type Ask = Box<dyn FnOnce(&mut Crew) + Send>;

impl Fleet {
    /// Starts all workers, of which so many in all are killed. With a program of an older build, all of them are its at
    /// first, and half of them later.
    pub(crate) fn start(
        place: &Place,
        books: Arc<Books>,
        seed: u64,
        kills: u32,
        old: Option<PathBuf>,
    ) -> Result<Self> {
        let size = if old.is_some() { MIXED_WORKERS } else { WORKERS };
        let (place, told) = (place.clone(), Arc::new(Mutex::new(Losses::default())));
        let (asks, asked) = channel();
        let tells = told.clone();
        let thread = std::thread::Builder::new().name("outlast-fleet".into()).spawn(move || {
            let mut crew = Crew::start(place, books, seed, kills, old)?;
            crew.watch(&asked, &tells)
        })?;
        Ok(Self { asks: Some(asks), thread: Some(thread), told, size })
    }

    /// How many workers there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// After how many of `kills` workers of the new build are started.
    pub(crate) fn old_alone(kills: u32) -> u32 {
        kills.div_ceil(OLD_ALONE)
    }

    /// Stops the workers of the new build; old ones take their places.
    pub(crate) fn roll_back(&mut self) -> Result<()> {
        let asks = self.asks.as_ref().ok_or("the workers have been stopped")?;
        // When nobody is there to do it, the next look at the losses says why.
        let _ = asks.send(Box::new(Crew::roll_back));
        Ok(())
    }

    /// What happened so far. Fails when something went wrong that was not meant to.
    pub(crate) fn losses(&mut self) -> Result<Losses> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
            return Err("the workers are gone".into());
        }
        Ok(*self.told.lock())
    }

    /// Freezes all of them, lets `work` see the picture, and lets them go on.
    pub(crate) fn frozen<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = channel();
        let asks = self.asks.as_ref().ok_or("the workers have been stopped")?;
        // Whoever does not answer has ended, and tells why below.
        let _ = asks.send(Box::new(move |crew| drop(answer.send(crew.frozen(work)))));
        match answered.recv() {
            Ok(done) => done,
            Err(_) => Err(self.join().err().unwrap_or_else(|| "the workers are gone".into())),
        }
    }

    /// Tells all to stop, and waits until they have.
    pub(crate) fn stop(mut self) -> Result<Losses> {
        self.asks = None;
        self.join()?;
        Ok(*self.told.lock())
    }

    fn join(&mut self) -> Result<()> {
        let thread = self.thread.take().ok_or("the workers have been stopped")?;
        thread.join().map_err(|_| "the thread of the workers panicked")?
    }
}

/// The workers, as their thread sees them.
struct Crew {
    place: Place,
    books: Arc<Books>,
    seed: u64,
    /// The program of the older build, if there is one.
    old: Option<PathBuf>,
    stage: Stage,
    kills: u32,
    processes: Vec<Process>,
    /// How many lives may still be given a deadly fate.
    doomed_left: u32,
    losses: Losses,
}

impl Crew {
    fn start(place: Place, books: Arc<Books>, seed: u64, kills: u32, old: Option<PathBuf>) -> Result<Self> {
        let size = if old.is_some() { MIXED_WORKERS } else { WORKERS };
        let mut crew = Self {
            place,
            books,
            seed,
            old,
            stage: Stage::OldAlone,
            kills,
            processes: Vec::new(),
            doomed_left: kills,
            losses: Losses::default(),
        };
        for slot in 0..size {
            let process = crew.bear(slot)?;
            crew.processes.push(process);
        }
        Ok(crew)
    }

    /// The build of the next worker in a slot.
    fn build_in(&self, slot: usize) -> Build {
        match self.stage {
            _ if self.old.is_none() => Build::New,
            Stage::Mixed if !slot.is_multiple_of(2) => Build::New,
            Stage::OldAlone | Stage::Mixed | Stage::RolledBack => Build::Old,
        }
    }

    fn roll_back(&mut self) {
        self.stage = Stage::RolledBack;
        for process in self.processes.iter_mut().filter(|process| process.build == Build::New) {
            process.is_leaving = true;
            drop(process.child.stdin.take());
        }
    }

    /// Watches until nobody is there who could ask for something, then stops all.
    fn watch(&mut self, asked: &Receiver<Ask>, told: &Mutex<Losses>) -> Result<()> {
        loop {
            match asked.recv_timeout(TICK) {
                Ok(ask) => ask(self),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop(),
            }
            self.tick()?;
            *told.lock() = self.losses;
        }
    }

    /// Kills, freezes and lets go on whose time has come, and starts others for the dead.
    fn tick(&mut self) -> Result<()> {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            process.freeze_or_wake(&self.books, &mut self.losses)?;
            if process.is_leaving {
                if process.has_left()? {
                    self.processes[index] = self.bear(index)?;
                }
            } else if process.has_died(&mut self.losses)? {
                self.losses.kills += 1;
                self.books.diary.note(&Diary::Killed { life: process.life })?;
                self.processes[index] = self.bear(index)?;
            }
        }
        if self.stage == Stage::OldAlone && self.losses.kills >= Fleet::old_alone(self.kills) {
            self.stage = Stage::Mixed;
        }
        self.losses.new_workers = self.processes.iter().filter(|process| process.build == Build::New).count();
        self.losses.is_calm = self.processes.iter().all(|process| process.fate == Fate::LONG);
        Ok(())
    }

    fn frozen<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.processes.iter().try_for_each(|process| process.signal(Signal::STOP))?;
        self.processes.iter().try_for_each(Process::wait_until_stopped)?;
        let done = work();
        self.processes.iter().try_for_each(|process| process.signal(Signal::CONT))?;
        done
    }

    fn stop(&mut self) -> Result<()> {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
        let until = SystemClock.now().plus(STOP_PATIENCE);
        for process in &mut self.processes {
            while process.child.try_wait()?.is_none() {
                if SystemClock.now() > until {
                    return Err(
                        format!("worker {} does not stop within {STOP_PATIENCE:?}", process.life).into()
                    );
                }
                std::thread::park_timeout(Duration::from_millis(5));
            }
            let status = process.child.wait()?;
            if !status.success() {
                return Err(process.failed(&status));
            }
        }
        Ok(())
    }

    fn bear(&mut self, slot: usize) -> Result<Process> {
        let build = self.build_in(slot);
        let life = self.losses.lives;
        self.losses.lives += 1;
        let is_doomed = self.doomed_left > 0;
        self.doomed_left = self.doomed_left.saturating_sub(1);
        let fate =
            if is_doomed { Fate::of(self.seed, life, self.place.world().session()) } else { Fate::LONG };
        let mut command = match &self.old {
            Some(old) if build == Build::Old => Command::new(old),
            _ => Command::new(std::env::current_exe()?),
        };
        command.arg("worker").arg(self.place.folder()).arg(life.to_string());
        if self.place.world() == WorldKind::Postgres {
            command.arg("--url").arg(self.place.url());
        }
        if let End::Point(point) = fate.end {
            command.arg("--point").arg(point.to_string());
        }
        let log = File::options().create(true).append(true).open(self.place.log(life))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        let diary = Diary::Born { life, pid: child.id(), fate: format!("{fate}, {build:?} build") };
        let process =
            Process { child, life, build, is_leaving: false, fate, born: SystemClock.now(), frozen: None };
        self.books.diary.note(&diary)?;
        Ok(process)
    }
}

impl Process {
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("a process has no id")?;
        match kill_process(pid, signal) {
            // Dead, but not yet waited for: that is told by the next tick.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            done => Ok(done?),
        }
    }

    /// A signal is only sent; the process stops a moment later.
    fn wait_until_stopped(&self) -> Result<()> {
        let stat = format!("/proc/{}/task", self.child.id());
        for _ in 0..2_000 {
            let tasks = std::fs::read_dir(&stat)?;
            let mut states = tasks.map(|task| state(&task.ok()?.path().join("stat")));
            if states.all(|state| matches!(state, Some('T' | 'Z' | 'X') | None)) {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Err(format!("worker {} does not freeze", self.life).into())
    }

    fn freeze_or_wake(&mut self, books: &Books, losses: &mut Losses) -> Result<()> {
        let Some((after, time)) = self.fate.freeze else { return Ok(()) };
        let now = SystemClock.now();
        match self.frozen {
            None if now >= self.born.plus(after) => {
                self.signal(Signal::STOP)?;
                self.frozen = Some(now);
            }
            Some(from) if now >= from.plus(time) => {
                books.diary.note(&Diary::Frozen { life: self.life, from, until: now })?;
                self.signal(Signal::CONT)?;
                losses.stops += 1;
                self.fate.freeze = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether it has stopped, as it was told to.
    fn has_left(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.failed(&status)),
        }
    }

    /// Kills it if its time has come. Tells whether it is dead.
    fn has_died(&mut self, losses: &mut Losses) -> Result<bool> {
        if let Some(status) = self.child.try_wait()? {
            if status.signal() != Some(SIGKILL) || !matches!(self.fate.end, End::Point(_)) {
                return Err(self.failed(&status));
            }
            losses.at_points += 1;
            return Ok(true);
        }
        let time = match self.fate.end {
            End::Never => return Ok(false),
            End::Point(_) => POINT_PATIENCE,
            End::After(time) => time,
        };
        if SystemClock.now() < self.born.plus(time) || self.fate.freeze.is_some() {
            return Ok(false);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(true)
    }

    fn failed(&self, status: &std::process::ExitStatus) -> Box<dyn std::error::Error + Send + Sync> {
        format!("worker {} ended by itself with {status}; see `worker-{}.log`", self.life, self.life).into()
    }
}

/// The state in a file such as `/proc/1/stat`: the letter behind the name in parentheses.
fn state(stat: &std::path::Path) -> Option<char> {
    let text = std::fs::read_to_string(stat).ok()?;
    text.rsplit(')').next()?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_fate_of_a_life() {
        let fates =
            |seed| (0..50).map(|life| Fate::of(seed, life, Duration::from_secs(1))).collect::<Vec<_>>();
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        let frozen = fates(7).iter().filter(|fate| fate.freeze.is_some()).count();
        assert_eq!(frozen, 7, "one of {FROZEN_EVERY}");
    }

    #[test]
    fn the_state_of_a_process_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        std::fs::write(&path, "12 (a) T (b) S 1 1").unwrap();
        assert_eq!(state(&path), Some('S'));
    }
}
