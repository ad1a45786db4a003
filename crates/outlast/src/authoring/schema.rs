//! JSON Schemas of the inputs and outputs of workflows and steps, for documentation, forms and other languages.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use crate::authoring::register::{StepMark, WorkflowMark};
use crate::authoring::step::{ByName, Step, StepDefinition, StepFn};
use crate::authoring::workflow::{Workflow, WorkflowDefinition, WorkflowFn};

/// The JSON Schemas (draft 2020-12) of the input and output of a workflow or step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Schema {
    /// The durable name.
    pub name: &'static str,
    /// The version of a workflow; `None` for a step.
    pub version: Option<u32>,
    /// The schema of the input. Several parameters are an array.
    pub input: Value,
    /// The schema of the output.
    pub output: Value,
}

/// Returns the schema of a workflow or step: a function with `#[workflow]` or `#[step]`, or a [`Workflow`] or [`Step`]
/// constant.
///
/// Requires the feature `schema`. The types must implement `schemars::JsonSchema`, of version 1 of that crate.
///
/// ```
/// # use outlast::prelude::*;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize, schemars::JsonSchema)]
/// struct Order {
///     /// What is paid.
///     cents: u32,
/// }
///
/// #[workflow(version = 2)]
/// async fn checkout(ctx: Context, order: Order) -> Result<String, Error> {
///     Ok(format!("paid {}", order.cents))
/// }
///
/// let schema = outlast::schema_of(checkout);
/// assert_eq!((schema.name, schema.version), ("checkout", Some(2)));
/// assert_eq!(schema.input["properties"]["cents"]["description"], "What is paid.");
/// assert_eq!(schema.output["type"], "string");
/// ```
pub fn schema_of<H: HasSchema<M>, M>(handle: H) -> Schema {
    handle.schema()
}

/// A handle to a workflow or step whose types have a schema. `M` is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no schema",
    label = "expected a workflow or step whose input and output are `schemars::JsonSchema`"
)]
pub trait HasSchema<M> {
    /// Returns the schema.
    fn schema(&self) -> Schema;
}

impl<F, Args> HasSchema<WorkflowMark<Args>> for F
where
    F: WorkflowFn<Args>,
    <F::Definition as WorkflowDefinition>::Input: JsonSchema,
    <F::Definition as WorkflowDefinition>::Output: JsonSchema,
{
    fn schema(&self) -> Schema {
        type In<D> = <D as WorkflowDefinition>::Input;
        type Out<D> = <D as WorkflowDefinition>::Output;
        let version = Some(F::Definition::VERSION);
        of_types::<In<F::Definition>, Out<F::Definition>>(F::Definition::NAME, version)
    }
}

impl<F, Args> HasSchema<StepMark<Args>> for F
where
    F: StepFn<Args>,
    <F::Definition as StepDefinition>::Input: JsonSchema,
    <F::Definition as StepDefinition>::Output: JsonSchema,
{
    fn schema(&self) -> Schema {
        type In<D> = <D as StepDefinition>::Input;
        type Out<D> = <D as StepDefinition>::Output;
        of_types::<In<F::Definition>, Out<F::Definition>>(F::Definition::NAME, None)
    }
}

impl<I: JsonSchema, O: JsonSchema> HasSchema<ByName> for Workflow<I, O> {
    fn schema(&self) -> Schema {
        of_types::<I, O>(self.name(), Some(self.version()))
    }
}

impl<I: JsonSchema, O: JsonSchema> HasSchema<ByName> for Step<I, O> {
    fn schema(&self) -> Schema {
        of_types::<I, O>(self.name(), None)
    }
}

fn of_types<I: JsonSchema, O: JsonSchema>(name: &'static str, version: Option<u32>) -> Schema {
    // A type may accept more than it produces: inputs are deserialized, outputs are serialized.
    let reading = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let writing = SchemaSettings::draft2020_12().for_serialize().into_generator();
    Schema {
        name,
        version,
        input: reading.into_root_schema_for::<I>().to_value(),
        output: writing.into_root_schema_for::<O>().to_value(),
    }
}
