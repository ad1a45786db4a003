//! The processes of workers: the seed determines when each is killed or frozen.

use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::workdir::{LogFiles, ProcessEvent, Workdir, WorldKind};

/// The number of commands that may wait for the supervisor.
const COMMANDS_MAX: usize = 16;

const SIGKILL: i32 = 9;

/// The workers of one world, and those of a world with programs of two builds.
pub(crate) const WORKERS: usize = 3;
const MIXED_WORKERS: usize = 4;

/// The divisor of the kills that happen while all workers are of the old build, if there is one.
const OLD_ONLY_DIVISOR: u32 = 5;

/// The interval at which the processes are checked.
const TICK: Duration = Duration::from_millis(2);

/// One of this many processes is frozen once.
const FROZEN_EVERY: u32 = 7;

/// How long a process may run until it kills itself; then it is killed from outside.
const POINT_PATIENCE: Duration = Duration::from_secs(5);

/// How long a worker may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// When a process is killed, and whether it is frozen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KillPlan {
    end: KillTime,
    /// The time after which it is frozen, and the duration.
    freeze: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillTime {
    Never,
    /// It kills itself at this commit point.
    Point(u64),
    /// It is killed when this time has passed.
    After(Duration),
}

impl KillPlan {
    const NONE: Self = Self { end: KillTime::Never, freeze: None };

    /// The plan of a process. A frozen process stays frozen for longer than its session.
    fn of(seed: u64, worker_number: u32, session: Duration) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed ^ (u64::from(worker_number) << 20));
        let mut millis = |from, to| Duration::from_millis(chance.u64(from..to));
        if worker_number % FROZEN_EVERY == 2 {
            let (after, time) = (millis(30, 400), session + millis(300, 1_400));
            // Long enough for the continued process to make calls.
            return Self {
                end: KillTime::After(after + time + millis(200, 900)),
                freeze: Some((after, time)),
            };
        }
        let after = millis(20, 700);
        let end = if chance.bool() { KillTime::Point(chance.u64(1..160)) } else { KillTime::After(after) };
        Self { end, freeze: None }
    }
}

impl fmt::Display for KillPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((after, time)) = self.freeze {
            write!(f, "frozen after {after:?} for {time:?}, ")?;
        }
        match self.end {
            KillTime::Never => write!(f, "not killed"),
            KillTime::Point(point) => write!(f, "killed at commit point {point}"),
            KillTime::After(time) => write!(f, "killed after {time:?}"),
        }
    }
}

/// The build of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Old,
    New,
}

/// The stages of an upgrade, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpgradeStage {
    /// All workers are old: they create the schema.
    OldOnly,
    /// Half of the workers are old.
    Mixed,
    /// The new workers stop, and old ones replace them.
    RolledBack,
    /// Half of the workers are new again.
    Upgraded,
}

/// A worker's process. It is killed when this is dropped.
#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    worker_number: u32,
    build: Build,
    /// Whether it was asked to stop.
    is_leaving: bool,
    plan: KillPlan,
    started_at: Timestamp,
    frozen_since: Option<Timestamp>,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // An error means that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kills and freezes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KillCounts {
    pub(crate) kills: u32,
    pub(crate) at_commit_points: u32,
    pub(crate) freezes: u32,
    pub(crate) started: u32,
    /// The number of running workers of the new build.
    pub(crate) new_workers: usize,
    /// Whether all kills are done.
    pub(crate) is_done: bool,
}

/// All workers, supervised by a thread: a write of this process may have to wait for a frozen worker, which the thread
/// must continue meanwhile. The workers are killed when the thread ends.
pub(crate) struct WorkerPool {
    // Declared first, so that the channel is closed before the thread is joined.
    commands: Option<SyncSender<SupervisorCommand>>,
    thread: Option<JoinHandle<Result<()>>>,
    counts: Arc<Mutex<KillCounts>>,
    size: usize,
}

/// A command that the supervisor executes between two checks.
type SupervisorCommand = Box<dyn FnOnce(&mut Supervisor) + Send>;

impl WorkerPool {
    /// Starts all workers, of which `kills` in total are killed. With a program of an older build, all workers are old
    /// at first, and half of them later.
    pub(crate) fn start(
        workdir: &Workdir,
        logs: Arc<LogFiles>,
        seed: u64,
        kills: u32,
        old: Option<PathBuf>,
    ) -> Result<Self> {
        let size = if old.is_some() { MIXED_WORKERS } else { WORKERS };
        let (workdir, counts) = (workdir.clone(), Arc::new(Mutex::new(KillCounts::default())));
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let shared_counts = counts.clone();
        let thread = std::thread::Builder::new().name("outlast-fleet".into()).spawn(move || {
            let mut supervisor = Supervisor::start(workdir, logs, seed, kills, old)?;
            supervisor.watch(&received, &shared_counts)
        })?;
        Ok(Self { commands: Some(commands), thread: Some(thread), counts, size })
    }

    /// How many workers there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The number of kills after which workers of the new build are started.
    pub(crate) fn old_only_kills(kills: u32) -> u32 {
        kills.div_ceil(OLD_ONLY_DIVISOR)
    }

    /// Stops the workers of the new build; old ones replace them.
    pub(crate) fn roll_back(&mut self) -> Result<()> {
        let commands = self.commands.as_ref().ok_or("the workers have been stopped")?;
        // If the supervisor has ended, the next check reports why.
        let _ = commands.send(Box::new(Supervisor::roll_back));
        Ok(())
    }

    /// Stops half of the workers; workers of the new build replace them.
    pub(crate) fn upgrade_again(&mut self) -> Result<()> {
        let commands = self.commands.as_ref().ok_or("the workers have been stopped")?;
        // If the supervisor has ended, the next check reports why.
        let _ = commands.send(Box::new(Supervisor::upgrade_again));
        Ok(())
    }

    /// The counts so far. Fails when the supervisor has failed.
    pub(crate) fn kill_counts(&mut self) -> Result<KillCounts> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
            return Err("the supervisor of the workers has ended".into());
        }
        Ok(*self.counts.lock())
    }

    /// Freezes all workers, calls `work`, and continues them.
    pub(crate) fn while_frozen<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        let commands = self.commands.as_ref().ok_or("the workers have been stopped")?;
        // If the supervisor has ended, the result below reports why.
        let _ = commands.send(Box::new(move |supervisor| drop(answer.send(supervisor.while_frozen(work)))));
        match answered.recv() {
            Ok(done) => done,
            Err(_) => {
                Err(self.join().err().unwrap_or_else(|| "the supervisor of the workers has ended".into()))
            }
        }
    }

    /// Stops all workers, and waits for their ends.
    pub(crate) fn stop(mut self) -> Result<KillCounts> {
        self.commands = None;
        self.join()?;
        Ok(*self.counts.lock())
    }

    fn join(&mut self) -> Result<()> {
        let thread = self.thread.take().ok_or("the workers have been stopped")?;
        thread.join().map_err(|_| "the thread of the workers panicked")?
    }
}

/// The state of the supervising thread.
struct Supervisor {
    workdir: Workdir,
    logs: Arc<LogFiles>,
    seed: u64,
    /// The program of the older build, if there is one.
    old: Option<PathBuf>,
    upgrade_stage: UpgradeStage,
    kills: u32,
    processes: Vec<WorkerProcess>,
    /// The number of processes that are still to be killed.
    kills_left: u32,
    kill_counts: KillCounts,
}

impl Supervisor {
    fn start(
        workdir: Workdir,
        logs: Arc<LogFiles>,
        seed: u64,
        kills: u32,
        old: Option<PathBuf>,
    ) -> Result<Self> {
        let size = if old.is_some() { MIXED_WORKERS } else { WORKERS };
        let mut supervisor = Self {
            workdir,
            logs,
            seed,
            old,
            upgrade_stage: UpgradeStage::OldOnly,
            kills,
            processes: Vec::new(),
            kills_left: kills,
            kill_counts: KillCounts::default(),
        };
        for slot in 0..size {
            let process = supervisor.spawn_worker(slot)?;
            supervisor.processes.push(process);
        }
        Ok(supervisor)
    }

    /// The build of the next worker in a slot.
    fn build_in(&self, slot: usize) -> Build {
        match self.upgrade_stage {
            _ if self.old.is_none() => Build::New,
            UpgradeStage::Mixed | UpgradeStage::Upgraded if !slot.is_multiple_of(2) => Build::New,
            _ => Build::Old,
        }
    }

    fn roll_back(&mut self) {
        self.upgrade_stage = UpgradeStage::RolledBack;
        self.replace_others();
    }

    fn upgrade_again(&mut self) {
        self.upgrade_stage = UpgradeStage::Upgraded;
        self.replace_others();
    }

    /// Stops the workers whose build is not that of their slot.
    fn replace_others(&mut self) {
        for slot in 0..self.processes.len() {
            let build = self.build_in(slot);
            let process = &mut self.processes[slot];
            if process.build != build {
                process.is_leaving = true;
                drop(process.child.stdin.take());
            }
        }
    }

    /// Supervises the workers until the channel is closed, then stops them.
    fn watch(&mut self, received: &Receiver<SupervisorCommand>, counts: &Mutex<KillCounts>) -> Result<()> {
        loop {
            match received.recv_timeout(TICK) {
                Ok(command) => command(self),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop(),
            }
            self.tick()?;
            *counts.lock() = self.kill_counts;
        }
    }

    /// Kills, freezes and continues workers that are due, and replaces the dead.
    fn tick(&mut self) -> Result<()> {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            process.freeze_or_continue(&self.logs, &mut self.kill_counts)?;
            if process.is_leaving {
                if process.has_left()? {
                    let left = ProcessEvent::Left { worker_number: process.worker_number };
                    self.logs.process_events.append(&left)?;
                    self.processes[index] = self.spawn_worker(index)?;
                }
            } else if process.has_died(&mut self.kill_counts)? {
                self.kill_counts.kills += 1;
                self.logs
                    .process_events
                    .append(&ProcessEvent::Killed { worker_number: process.worker_number })?;
                self.processes[index] = self.spawn_worker(index)?;
            }
        }
        if self.upgrade_stage == UpgradeStage::OldOnly
            && self.kill_counts.kills >= WorkerPool::old_only_kills(self.kills)
        {
            self.upgrade_stage = UpgradeStage::Mixed;
        }
        self.kill_counts.new_workers =
            self.processes.iter().filter(|process| process.build == Build::New).count();
        self.kill_counts.is_done = self.processes.iter().all(|process| process.plan == KillPlan::NONE);
        Ok(())
    }

    fn while_frozen<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.processes.iter().try_for_each(|process| process.signal(Signal::STOP))?;
        self.processes.iter().try_for_each(WorkerProcess::wait_until_stopped)?;
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
                    return Err(format!(
                        "worker {} does not stop within {STOP_PATIENCE:?}",
                        process.worker_number
                    )
                    .into());
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

    fn spawn_worker(&mut self, slot: usize) -> Result<WorkerProcess> {
        let build = self.build_in(slot);
        let worker_number = self.kill_counts.started;
        self.kill_counts.started += 1;
        let is_to_be_killed = self.kills_left > 0;
        self.kills_left = self.kills_left.saturating_sub(1);
        let plan = if is_to_be_killed {
            KillPlan::of(self.seed, worker_number, self.workdir.world().session())
        } else {
            KillPlan::NONE
        };
        let mut command = match &self.old {
            Some(old) if build == Build::Old => Command::new(old),
            _ => Command::new(std::env::current_exe()?),
        };
        command.arg("worker").arg(self.workdir.folder()).arg(worker_number.to_string());
        if self.workdir.world() == WorldKind::Postgres {
            command.arg("--url").arg(self.workdir.url());
        }
        if let KillTime::Point(point) = plan.end {
            command.arg("--point").arg(point.to_string());
        }
        let log = File::options().create(true).append(true).open(self.workdir.log(worker_number))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        let process_events = ProcessEvent::Started {
            worker_number,
            pid: child.id(),
            plan: format!("{plan}, {build:?} build"),
        };
        let process = WorkerProcess {
            child,
            worker_number,
            build,
            is_leaving: false,
            plan,
            started_at: SystemClock.now(),
            frozen_since: None,
        };
        self.logs.process_events.append(&process_events)?;
        Ok(process)
    }
}

impl WorkerProcess {
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("a process has no id")?;
        match kill_process(pid, signal) {
            // Dead, but not yet waited for: the next tick handles it.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Waits until a stopped process has really stopped: a signal takes effect later.
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
        Err(format!("worker {} does not freeze", self.worker_number).into())
    }

    fn freeze_or_continue(&mut self, logs: &LogFiles, kill_counts: &mut KillCounts) -> Result<()> {
        let Some((after, time)) = self.plan.freeze else { return Ok(()) };
        let now = SystemClock.now();
        match self.frozen_since {
            None if now >= self.started_at.plus(after) => {
                self.signal(Signal::STOP)?;
                self.frozen_since = Some(now);
            }
            Some(from) if now >= from.plus(time) => {
                logs.process_events.append(&ProcessEvent::Frozen {
                    worker_number: self.worker_number,
                    from,
                    until: now,
                })?;
                self.signal(Signal::CONT)?;
                kill_counts.freezes += 1;
                self.plan.freeze = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether it has stopped, as requested.
    fn has_left(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.failed(&status)),
        }
    }

    /// Kills it if it is due. Returns whether it is dead.
    fn has_died(&mut self, kill_counts: &mut KillCounts) -> Result<bool> {
        if let Some(status) = self.child.try_wait()? {
            if status.signal() != Some(SIGKILL) || !matches!(self.plan.end, KillTime::Point(_)) {
                return Err(self.failed(&status));
            }
            kill_counts.at_commit_points += 1;
            return Ok(true);
        }
        let time = match self.plan.end {
            KillTime::Never => return Ok(false),
            KillTime::Point(_) => POINT_PATIENCE,
            KillTime::After(time) => time,
        };
        if SystemClock.now() < self.started_at.plus(time) || self.plan.freeze.is_some() {
            return Ok(false);
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(true)
    }

    fn failed(&self, status: &std::process::ExitStatus) -> Box<dyn std::error::Error + Send + Sync> {
        format!(
            "worker {} ended by itself with {status}; see `worker-{}.log`",
            self.worker_number, self.worker_number
        )
        .into()
    }
}

/// The state in a file such as `/proc/1/stat`: the letter after the name in parentheses.
fn state(stat: &std::path::Path) -> Option<char> {
    let text = std::fs::read_to_string(stat).ok()?;
    text.rsplit(')').next()?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_plan_of_each_process() {
        let plans = |seed| {
            (0..50)
                .map(|worker_number| KillPlan::of(seed, worker_number, Duration::from_secs(1)))
                .collect::<Vec<_>>()
        };
        assert_eq!(plans(7), plans(7));
        assert_ne!(plans(7), plans(8));
        let frozen = plans(7).iter().filter(|plan| plan.freeze.is_some()).count();
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
