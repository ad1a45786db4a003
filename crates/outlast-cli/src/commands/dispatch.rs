//! From the arguments to the function of a command.

use super::CommandContext;
use super::control::ControlVerb;
use super::{access, audit, config, dev, doctor, mcp, new, program, serve, worker, workflow, world};
use super::{
    bulk_control, control, events, explain, failure, family, fork, hook, list, queue, restart, retry,
    run_output, schedule, send, show, start, steps, stream, watch,
};
use crate::app::WorkerCode;
use crate::args::{
    AuditCommand, Command, ConfigCommand, HookCommand, QueueCommand, RunCommand, StreamCommand,
    WorkerCommand, WorkflowCommand, WorldCommand,
};
use crate::exit::{CommandError, Exit};

/// Executes a command.
pub(crate) async fn dispatch(
    context: CommandContext,
    command: Command,
    code: Option<Box<dyn WorkerCode>>,
) -> Result<Exit, CommandError> {
    let context = &context;
    match command {
        Command::Start(args) => start::start(context, &args).await,
        Command::List(args) => list::list(context, &args).await,
        Command::Show(args) => show::show(context, &args.run).await,
        Command::Explain(args) => explain::explain(context, &args.run).await,
        Command::Watch(args) => watch::watch(context, &args.run).await,
        Command::Send(args) => send::send(context, &args).await,
        Command::Ask(args) => send::ask(context, &args).await,
        Command::Run(command) => run(context, command).await,
        Command::Stream(StreamCommand::List(args)) => stream::list(context, &args.run).await,
        Command::Stream(StreamCommand::Tail(args)) => stream::tail(context, &args).await,
        Command::Hook(HookCommand::List(args)) => hook::list(context, &args).await,
        Command::Failure(command) => failure::failure(context, command).await,
        Command::Bulk(command) => bulk_control::bulk(context, command).await,
        Command::Schedule(command) => schedule::schedule(context, command).await,
        Command::Dev(args) => dev::dev(context, &args, code).await,
        Command::Access(command) => access::access(context, command),
        Command::Serve(args) => serve::serve(context, &args).await,
        Command::Worker(args) => match args.command {
            Some(WorkerCommand::List) => worker::list(context).await,
            Some(WorkerCommand::Show { worker }) => worker::show(context, &worker).await,
            None => worker::work(context, &args, code).await,
        },
        Command::Mcp(args) => mcp::mcp(context, args).await,
        Command::Check(args) => worker::check(context, &args, code).await,
        Command::Audit(AuditCommand::List(args)) => audit::list(context, &args).await,
        Command::Queue(QueueCommand::List) => queue::list(context).await,
        Command::Queue(QueueCommand::Show { queue }) => queue::show(context, &queue).await,
        Command::Workflow(WorkflowCommand::List) => workflow::list(context).await,
        Command::Workflow(WorkflowCommand::Show { name }) => workflow::show(context, &name).await,
        Command::World(command) => world(context, command).await,
        Command::Doctor => doctor::doctor(context).await,
        Command::Config(ConfigCommand::Show { origin }) => config::show(context, origin),
        Command::Config(ConfigCommand::Path) => config::path(context),
        Command::New(args) => new::new(context, &args),
        Command::Completions { shell } => program::completions(context, shell),
        Command::Man { to } => program::man(context, to.as_deref()),
        Command::Version => program::version(context),
    }
}

async fn run(context: &CommandContext, command: RunCommand) -> Result<Exit, CommandError> {
    match command {
        RunCommand::Start(args) => start::start(context, &args).await,
        RunCommand::List(args) => list::list(context, &args).await,
        RunCommand::Show(args) => show::show(context, &args.run).await,
        RunCommand::Explain(args) => explain::explain(context, &args.run).await,
        RunCommand::Watch(args) => watch::watch(context, &args.run).await,
        RunCommand::Events(args) => events::events(context, &args).await,
        RunCommand::Steps(args) => steps::steps(context, &args).await,
        RunCommand::Children(args) => family::children(context, &args.run).await,
        RunCommand::Output(args) => run_output::output(context, &args).await,
        RunCommand::State(args) => run_output::state(context, &args.run).await,
        RunCommand::Export(args) => run_output::export(context, &args).await,
        RunCommand::Cancel(args) => control::control(context, ControlVerb::Cancel, &args).await,
        RunCommand::Terminate { control, compensating } => {
            control::control(context, ControlVerb::Terminate { compensating }, &control).await
        }
        RunCommand::Pause(args) => control::control(context, ControlVerb::Pause, &args).await,
        RunCommand::Resume(args) => control::control(context, ControlVerb::Resume, &args).await,
        RunCommand::Wake(args) => control::wake(context, &args).await,
        RunCommand::Retry(args) => retry::retry(context, &args).await,
        RunCommand::Restart(args) => restart::restart(context, &args).await,
        RunCommand::Fork(args) => fork::fork(context, &args).await,
        RunCommand::Quarantine(args) => control::quarantine(context, &args.run).await,
        RunCommand::Release(args) => control::release(context, &args.run).await,
        RunCommand::Delete(args) => control::control(context, ControlVerb::Delete, &args).await,
    }
}

async fn world(context: &CommandContext, command: WorldCommand) -> Result<Exit, CommandError> {
    match command {
        WorldCommand::Info => world::info(context).await,
        WorldCommand::Migrate => world::migrate(context).await,
        WorldCommand::Prune { ended_before, dry_run, yes } => {
            world::prune(context, &ended_before, dry_run, yes).await
        }
        WorldCommand::Backup { file } => world::backup(context, &file).await,
    }
}
