//! An agent: a model's tokens are streamed while it answers, and another program reads them. Kill the program while it
//! answers and start it again: the run continues, and readers end with the tokens of the surviving attempt.
//!
//! ```text
//! cargo run --example agent              # a worker and a reader in one program
//! cargo run --example agent -- agent.db --pause 200ms
//! cargo run --example agent -- agent.db --read     # in a second terminal: only read
//! ```

use std::io::Write;
use std::time::Duration;

use outlast::prelude::*;
use outlast::{IntoDuration, StreamItem};
use serde::{Deserialize, Serialize};

/// The state that the run publishes.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    answered: usize,
    of: usize,
}

/// The model: it needs some time for each token.
#[derive(Clone, Copy)]
struct Model {
    pause: Duration,
}

impl Model {
    /// A real model computes here.
    #[allow(clippy::disallowed_methods, reason = "the model takes real time")]
    async fn compute(&self) {
        tokio::time::sleep(self.pause).await;
    }

    /// The tokens of the answer to a question.
    fn tokens(question: &str) -> Vec<String> {
        let words = ["the", "answer", "to", "that", "is", "written", "in", "small", "pieces"];
        words.iter().map(|word| format!("{word} ")).chain([format!("({question})")]).collect()
    }
}

/// Answers a question. Each token is shown as soon as the model has it.
#[step]
async fn answer(cx: StepContext<Model>, question: String) -> Result<String, StepError> {
    let stream = cx.stream("tokens");
    let mut answer = String::new();
    for token in Model::tokens(&question) {
        cx.state().compute().await;
        stream.write(&token).await?; // waits while the buffer is full
        answer.push_str(&token);
    }
    stream.write("\n").await?;
    Ok(answer)
}

#[workflow]
async fn agent(ctx: Context, questions: Vec<String>) -> Result<Vec<String>, Error> {
    let of = questions.len();
    let mut answers = Vec::new();
    for question in &questions {
        ctx.publish(&Progress { answered: answers.len(), of });
        answers.push(ctx.step(answer, question).await?);
    }
    ctx.publish(&Progress { answered: of, of });
    Ok(answers)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse()?;
    let world = outlast::open(&format!("sqlite:{}", arguments.file)).await?;
    let client = Client::new(world.clone());
    let mut worker = None;
    if !arguments.only_reads {
        let model = Model { pause: arguments.pause };
        worker = Some(Worker::builder(world).state(model).register((agent, answer)).start().await?);
    }
    let questions = ["why", "how", "when"].map(str::to_owned).to_vec();
    let run = client.start(agent, &questions).key("agent-1").await?;
    println!("run      {} {}", run.id(), if run.is_new() { "is new" } else { "is known and continues" });

    let mut tail = client.stream::<String>(run.id(), "tokens").follow().await?;
    while let Some(item) = tail.next().await? {
        match item {
            StreamItem::Chunk(token) => print!("{}", token.value),
            StreamItem::Restarted { .. } => println!("\n[the answer begins again]"),
        }
        std::io::stdout().flush()?;
    }
    let progress: Option<Progress> = client.state(run.id()).await?;
    if let Some(Progress { answered, of }) = progress {
        println!("progress {answered} of {of}");
    }
    println!("output   {}", run.output().await?.join(" | "));
    match worker {
        Some(worker) => worker.stop().await,
        None => Ok(()),
    }
}

/// The arguments of the program.
struct Arguments {
    file: String,
    pause: Duration,
    only_reads: bool,
}

impl Arguments {
    fn parse() -> Result<Self, Error> {
        let (mut file, mut pause, mut only_reads) = ("agent.db".to_owned(), "30ms".to_owned(), false);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--pause" => {
                    pause = arguments.next().ok_or_else(|| Error::msg("--pause: a duration is missing"))?;
                }
                "--read" => only_reads = true,
                name if name.starts_with('-') => {
                    return Err(Error::msg(format!(
                        "{name}: there is no such option; use --pause or --read"
                    )));
                }
                name => file = name.to_owned(),
            }
        }
        Ok(Self { file, pause: pause.as_str().into_duration()?, only_reads })
    }
}
