//! `access create`, `list` and `revoke`: the file of access keys that a server reads.

use std::fs;
use std::io::Write;
use std::path::Path;

use outlast::IntoDuration;
use outlast_server::{AccessKey, AccessKeys};

use super::CommandContext;
use crate::args::{AccessCommand, AccessCreateArgs};
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, Tone, one_line, times};

/// Executes a command on access keys.
pub(super) fn access(context: &CommandContext, command: AccessCommand) -> Result<Exit, CommandError> {
    match command {
        AccessCommand::Create(args) => create(context, &args),
        AccessCommand::List { keys } => list(context, &keys),
        AccessCommand::Revoke { id, keys } => revoke(context, &id, &keys),
    }
}

fn create(context: &CommandContext, args: &AccessCreateArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let keys = if args.keys.exists() { read(&args.keys)? } else { AccessKeys::default() };
    let (secret, mut stored) = AccessKey::generate(&args.name, args.role)?;
    if let Some(expires) = &args.expires {
        let time = expires.as_str().into_duration();
        let time = time.map_err(|error| CommandError::usage(format!("--expires: {error}")))?;
        stored.expires_at = Some(console.now().plus(time).into());
    }
    let id = stored.id.clone();
    keys.add(stored);
    write(&args.keys, &keys)?;
    let document =
        serde_json::json!({ "id": id, "name": args.name, "role": args.role, "secret": secret.secret() });
    console.document(&document)?;
    let name = one_line(&args.name);
    console.message(format!("access key {id} for {name} with role {}; it is shown only now:", args.role));
    console.line(secret.secret())?;
    Ok(Exit::Done)
}

fn list(context: &CommandContext, file: &Path) -> Result<Exit, CommandError> {
    let (console, look, now) = (&context.console, context.console.look, context.console.now());
    let keys = read(file)?.stored();
    let shown: Vec<_> = keys
        .iter()
        .map(|key| serde_json::json!({ "id": key.id, "name": key.name, "role": key.role, "expires_at": key.expires_at }))
        .collect();
    console.page(&serde_json::json!({ "items": shown }), &shown)?;
    if console.is_for_people() && keys.is_empty() {
        console.message("no access keys; see `outlast access create --help`");
        return Ok(Exit::Done);
    }
    let columns =
        [("ID", Align::Left), ("NAME", Align::Left), ("ROLE", Align::Left), ("EXPIRES", Align::Left)];
    let mut table = Table::new(columns);
    for key in keys {
        let expires = match key.expires_at {
            None => "never".into(),
            Some(at) if at.0 <= now => look.paint(Tone::Bad, "expired"),
            Some(at) => times::age(now, at.0),
        };
        table.row([key.id, one_line(&key.name).into_owned(), key.role.to_string(), expires]);
    }
    console.lines(table.lines(look))?;
    Ok(Exit::Done)
}

fn revoke(context: &CommandContext, id: &str, file: &Path) -> Result<Exit, CommandError> {
    let keys = read(file)?;
    if !keys.remove(id) {
        return Err(CommandError::not_found(format!("there is no access key `{id}` in {}", file.display())));
    }
    write(file, &keys)?;
    context.console.message(format!("revoked {id}; servers refuse it within 10 s"));
    Ok(Exit::Done)
}

fn read(file: &Path) -> Result<AccessKeys, CommandError> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| CommandError::usage(format!("{}: {error}", file.display())))?;
    Ok(AccessKeys::from_json(&text)?)
}

/// Replaces the file, so that a server never reads a part of it. Only its owner can read it.
fn write(file: &Path, keys: &AccessKeys) -> Result<(), CommandError> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = options.open(temporary)?;
    opened.write_all(keys.to_json().as_bytes())?;
    opened.sync_all()?;
    fs::rename(temporary, file)?;
    Ok(())
}
