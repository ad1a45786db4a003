//! `GET /openapi.json`: the description of the API, made from the table of routes.

mod operations;
mod parameters;

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use outlast_api::{ItemPage, Problem};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::extract::PrefixOf;
use crate::reply::{Reply, tagged};
use crate::routes::{RequiredRole, RouteInfo, route_table};

use operations::{Content, RouteSchema, route_schema};

/// The version of OpenAPI that the document follows.
const VERSION: &str = "3.1.0";

pub(crate) async fn handler(PrefixOf(prefix): PrefixOf, headers: HeaderMap) -> Reply {
    tagged(&headers, &document(&prefix))
}

/// The schemas that operations refer to.
#[derive(Default)]
pub(crate) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// Adds a type with everything that it contains, and refers to it.
    pub(crate) fn add<T: ToSchema>(&mut self) -> Value {
        let mut nested: Vec<(String, RefOr<Schema>)> = Vec::new();
        T::schemas(&mut nested);
        let name = schema_name::<T>();
        nested.push((name.clone(), T::schema()));
        for (name, schema) in nested {
            self.0.entry(name).or_insert_with(|| serde_json::to_value(&schema).unwrap_or_default());
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// Adds the schemas of a page and of its items.
    fn page<T: ToSchema>(&mut self) -> Value
    where
        ItemPage<T>: ToSchema,
    {
        self.add::<T>();
        self.add::<ItemPage<T>>()
    }
}

/// The name of a schema. A page of runs and a page of events have the same name in Rust, apart from their parameter.
fn schema_name<T: ToSchema>() -> String {
    let parameter =
        std::any::type_name::<T>().split_once('<').map(|(_, parameter)| parameter.trim_end_matches('>'));
    match parameter.and_then(|path| path.rsplit("::").next()) {
        Some(parameter) => format!("{}Of{parameter}", T::name()),
        None => T::name().into_owned(),
    }
}

/// The document, for a router below a prefix.
fn document(prefix: &str) -> Value {
    let mut schemas = Schemas::default();
    let problem = schemas.add::<Problem>();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in route_table() {
        let described = route_schema(&route, &mut schemas);
        let operation = operation(&route, described, &problem);
        let method = route.method.as_str().to_ascii_lowercase();
        paths.entry(template(route.path)).or_default().insert(method, operation);
    }
    json!({
        "openapi": VERSION,
        "info": {
            "title": "Outlast",
            "description": "Starts, controls and shows runs of durable workflows. Clients must ignore fields and enum \
                            values that they do not know.",
            "version": "1",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": if prefix.is_empty() { "/" } else { prefix } }],
        "security": [{ "access_key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "securitySchemes": {
                "access_key": {
                    "type": "http", "scheme": "bearer", "bearerFormat": "olk_…",
                    "description": "An access key. In the local mode none is needed.",
                },
            },
        },
    })
}

fn operation(route: &RouteInfo, described: RouteSchema, problem: &Value) -> Value {
    let RouteSchema { query, headers, body, is_body_required, responses } = described;
    let in_path = path_parameters(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let in_query = query.iter().map(|parameter| parameter.to_json("query"));
    let in_headers = headers.iter().map(|parameter| parameter.to_json("header"));
    let parameters: Vec<_> = in_path.chain(in_query).chain(in_headers).collect();
    let mut answers: Map<String, Value> =
        responses.into_iter().map(|response| (response.status.to_string(), response.to_json())).collect();
    answers.insert(
        "default".into(),
        json!({
            "description": "A problem document of RFC 9457",
            "content": { "application/problem+json": { "schema": problem } },
        }),
    );
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters,
        "responses": answers,
        "x-role": match route.required {
            RequiredRole::Public => "public",
            RequiredRole::Any => "any",
            RequiredRole::Role(role) => role.as_str(),
        },
    });
    if let Some(schema) = body {
        let content = Content::Json(schema).to_json();
        operation["requestBody"] = json!({ "required": is_body_required, "content": content });
    }
    if let Some(action) = route.action {
        operation["x-action"] = action.as_str().into();
    }
    if route.required == RequiredRole::Public {
        operation["security"] = json!([]);
    }
    operation
}

/// The path as OpenAPI writes it.
fn template(path: &str) -> String {
    path.replace("{*", "{")
}

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}').map(|name| name.trim_start_matches('*')))
}

/// The method and the words of the path.
fn operation_id(route: &RouteInfo) -> String {
    let words =
        route.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let method = route.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All references in a document.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            _ => {}
        }
    }

    /// Check 10, as far as it needs no other program.
    #[test]
    fn the_document_is_of_version_3_1_and_its_references_exist() {
        let document = document("/a/b");
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["servers"][0]["url"], "/a/b");
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn pages_of_different_items_have_different_schemas() {
        let document = document("");
        let item = |path: &str| {
            let schema =
                &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
            let page = document.pointer(schema["$ref"].as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
            page["properties"]["items"]["items"]["$ref"].as_str().unwrap().to_owned()
        };
        assert_eq!(item("/api/runs"), "#/components/schemas/RunJson");
        assert_eq!(item("/api/runs/{id}/events"), "#/components/schemas/EventJson");
        assert_eq!(item("/api/runs/{id}/operations"), "#/components/schemas/OperationJson");
    }

    #[test]
    fn the_document_lists_every_route_of_the_router_with_its_parameters() {
        let document = document("");
        let mut ids = BTreeSet::new();
        for route in route_table() {
            let operation =
                &document["paths"][template(route.path)][route.method.as_str().to_ascii_lowercase()];
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
            let parameters = operation["parameters"].as_array().unwrap();
            for name in path_parameters(route.path) {
                assert!(
                    parameters.iter().any(|parameter| parameter["name"] == name),
                    "{} {name}",
                    route.path
                );
            }
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.len() >= 2 && responses.contains_key("default"), "{}: no response", route.path);
            let has_body = route.method == "POST" || route.method == "PUT";
            assert_eq!(operation.get("requestBody").is_some(), has_body, "{}", route.path);
        }
        let documented: usize =
            document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(documented, route_table().len());
    }
}
