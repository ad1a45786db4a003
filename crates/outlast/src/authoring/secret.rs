//! Secrets in inputs, outputs and payloads.

use std::fmt;
use std::marker::PhantomData;

use outlast_core::secret::{SECRET_FIELD, SECRET_SHOWN};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is stored and used like any other, and never shown: a password, or the number of a card.
///
/// It is stored as `{"outlast:secret": value}`. The API, the dashboard and the commands replace such an object with `"•••"` in every
/// input, output, event, payload, state and stream, and in exported histories. Its debug text is `•••` as well, and an error
/// about a value of another type does not repeat the value.
///
/// The world contains the value. To encrypt it there, set a [`Codec`](outlast_core::Codec).
///
/// ```
/// use outlast::Secret;
/// use outlast::prelude::*;
///
/// #[step]
/// async fn charge(card: Secret<String>, cents: u64) -> Result<String, StepError> {
///     Ok(format!("{cents} from a card with {} digits", card.expose().len()))
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context, card: Secret<String>) -> Result<String, Error> {
///     ctx.step(charge, (card, 4200)).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let worker = Worker::builder(world.clone()).register((checkout, charge)).start().await?;
/// let run = Client::new(world).start(checkout, Secret::new("4242".to_owned())).await?;
/// assert_eq!(run.output().await?, "4200 from a card with 4 digits");
/// assert_eq!(format!("{:?}", Secret::new("4242")), "•••");
/// # worker.stop().await
/// # }
/// ```
///
/// Callers over HTTP write the object as well: `{"workflow": "checkout", "input": {"outlast:secret": "4242"}}`. A plain value is
/// refused, because it would be shown.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// A secret with this value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value, to be used.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// Returns the value, to be used.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SECRET_SHOWN)
    }
}

impl<T: Serialize> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Secret", 1)?;
        object.serialize_field(SECRET_FIELD, &self.0)?;
        object.end()
    }
}

/// Reads the stored form.
struct SecretVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SecretVisitor<T> {
    type Value = Secret<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a secret, written as {{\"{SECRET_FIELD}\": value}}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret<T>, A::Error> {
        if map.next_key::<String>()?.is_none_or(|name| name != SECRET_FIELD) {
            return Err(A::Error::missing_field(SECRET_FIELD));
        }
        // The original error may repeat the value.
        let other_type = |_| A::Error::custom("the secret is of another type");
        let value = map.next_value().map_err(other_type)?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(Secret(value)),
            Some(_) => Err(A::Error::custom("a secret has no other fields")),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Secret", &[SECRET_FIELD], SecretVisitor(PhantomData))
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Secret<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Secret_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut value = generator.subschema_for::<T>();
        value.insert("writeOnly".to_owned(), true.into());
        schemars::json_schema!({
            "type": "object",
            "properties": { SECRET_FIELD: value },
            "required": [SECRET_FIELD],
            "additionalProperties": false,
        })
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Payload;

    use super::*;

    #[test]
    fn a_secret_is_stored_with_its_mark_and_read_again() {
        let secret = Secret::new(("4242".to_owned(), 7_u64));
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(json, r#"{"outlast:secret":["4242",7]}"#);
        assert_eq!(serde_json::from_str::<Secret<(String, u64)>>(&json).unwrap(), secret);
        assert_eq!(outlast_core::without_secrets(&json), r#""•••""#);
    }

    #[test]
    fn neither_its_debug_text_nor_an_error_shows_it() {
        assert_eq!(format!("{:?}", Some(Secret::new("4242"))), "Some(•••)");
        let expected = "expected a secret, written as {\"outlast:secret\": value}";
        for (wrong, why) in [
            ("4242", expected),
            (r#"["4242"]"#, expected),
            (r#"{"secret":4242}"#, "missing field `outlast:secret`"),
            (r#"{"outlast:secret":"4242"}"#, "the secret is of another type"),
            (r#"{"outlast:secret":4242,"more":1}"#, "a secret has no other fields"),
        ] {
            // As callers get it.
            let payload = Payload::json(&serde_json::from_str::<serde_json::Value>(wrong).unwrap()).unwrap();
            let error = payload.decode::<Secret<u64>>().unwrap_err().to_string();
            assert!(!error.contains("4242"), "{error}");
            let error = serde_json::from_str::<Secret<u64>>(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("4242") || why == expected, "{error}");
        }
        let placeholder = serde_json::from_str::<Secret<String>>(r#""•••""#).unwrap_err().to_string();
        assert!(placeholder.contains(expected), "what was shown is not the value: {placeholder}");
    }

    #[cfg(feature = "schema")]
    #[test]
    fn its_schema_says_how_it_is_written() {
        let schema = schemars::schema_for!(Secret<String>);
        let expected = serde_json::json!({ "outlast:secret": { "type": "string", "writeOnly": true } });
        assert_eq!(schema.get("properties"), Some(&expected), "{schema:?}");
    }
}
