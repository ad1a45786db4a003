//! Serialization to JSON text that refuses values which would be decoded as other ones.
//!
//! `serde_json` writes `null` for `None`, for `()` and for a float that is not finite. So a float that is not finite
//! would be stored, but could never be decoded, and `Some(None)` and `Some(())` would be decoded as `None`. This
//! serializer forwards everything to that of `serde_json` and refuses those values, in the same pass over the value.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The JSON text of a value.
///
/// # Errors
///
/// When the value cannot be serialized (a map with keys that are not text), or would be decoded as another one (a float
/// that is not finite, `Some(None)`, `Some(())`).
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = Vec::with_capacity(128);
    value.serialize(Exact(&mut serde_json::Serializer::new(&mut text), Place::Plain))?;
    Ok(text)
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Place {
    /// Directly in a `Some`, perhaps wrapped in newtypes, which JSON does not show.
    InSome,
    /// Anywhere else.
    Plain,
}

/// The serializer of one value.
struct Exact<S>(S, Place);

/// The serializer of the parts of a value.
struct ExactParts<S>(S);

/// A value inside another one.
struct Inner<'a, T: ?Sized>(&'a T, Place);

impl<T: Serialize + ?Sized> Serialize for Inner<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Exact(serializer, self.1))
    }
}

#[cold]
fn not_finite<E: serde::ser::Error>(float: f64) -> E {
    E::custom(format_args!(
        "it has a float that is {float}, which JSON does not have; check it, or make the field an `Option`"
    ))
}

#[cold]
fn null_in_some<E: serde::ser::Error>(value: &str) -> E {
    E::custom(format_args!(
        "it has a `Some({value})`, which JSON cannot tell from `None`; use an enum with a name for each case"
    ))
}

macro_rules! pass_on {
    ($($method:ident($kind:ty))*) => {
        $(fn $method(self, value: $kind) -> Result<S::Ok, S::Error> {
            self.0.$method(value)
        })*
    };
}

impl<S: Serializer> Serializer for Exact<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = ExactParts<S::SerializeSeq>;
    type SerializeTuple = ExactParts<S::SerializeTuple>;
    type SerializeTupleStruct = ExactParts<S::SerializeTupleStruct>;
    type SerializeTupleVariant = ExactParts<S::SerializeTupleVariant>;
    type SerializeMap = ExactParts<S::SerializeMap>;
    type SerializeStruct = ExactParts<S::SerializeStruct>;
    type SerializeStructVariant = ExactParts<S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_i128(i128) serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_u128(u128) serialize_char(char) serialize_str(&str) serialize_bytes(&[u8])
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.0.serialize_f32(value) } else { Err(not_finite(value.into())) }
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.0.serialize_f64(value) } else { Err(not_finite(value)) }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        match self.1 {
            Place::InSome => Err(null_in_some("None")),
            Place::Plain => self.0.serialize_none(),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Inner(value, Place::InSome))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        match self.1 {
            Place::InSome => Err(null_in_some("()")),
            Place::Plain => self.0.serialize_unit(),
        }
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        match self.1 {
            Place::InSome => Err(null_in_some(name)),
            Place::Plain => self.0.serialize_unit_struct(name),
        }
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Inner(value, self.1))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Inner(value, Place::Plain))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(len).map(ExactParts)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(len).map(ExactParts)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0.serialize_tuple_struct(name, len).map(ExactParts)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0.serialize_tuple_variant(name, index, variant, len).map(ExactParts)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(len).map(ExactParts)
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, len).map(ExactParts)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0.serialize_struct_variant(name, index, variant, len).map(ExactParts)
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Values in a row: sequences and tuples.
macro_rules! in_a_row {
    ($($kind:ident $method:ident)*) => {$(
        impl<S: $kind> $kind for ExactParts<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$method(&Inner(value, Place::Plain))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        }
    )*};
}
in_a_row! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

/// Values with names: structs.
macro_rules! by_name {
    ($($kind:ident)*) => {$(
        impl<S: $kind> $kind for ExactParts<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                self.0.serialize_field(name, &Inner(value, Place::Plain))
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                self.0.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        }
    )*};
}
by_name! { SerializeStruct SerializeStructVariant }

impl<S: SerializeMap> SerializeMap for ExactParts<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(&Inner(key, Place::Plain))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Inner(value, Place::Plain))
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), S::Error> {
        self.0.serialize_entry(&Inner(key, Place::Plain), &Inner(value, Place::Plain))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    enum Shape {
        Nothing,
        Circle(f64),
        Line(f64, f32),
        Box { width: f64, depth: Option<f32> },
    }

    #[derive(Serialize)]
    struct Drawing {
        shapes: Vec<Shape>,
        scales: BTreeMap<String, f64>,
        origin: (f64, f64),
        wrapped: std::num::Wrapping<i128>,
        title: Option<char>,
        unit: (),
    }

    fn drawing() -> Drawing {
        let shapes = vec![
            Shape::Nothing,
            Shape::Circle(0.5),
            Shape::Line(1.0, 2.5),
            Shape::Box { width: 1e300, depth: None },
        ];
        Drawing {
            shapes,
            scales: BTreeMap::from([("x\"".to_owned(), 0.1)]),
            origin: (-0.0, 1.0 / 3.0),
            wrapped: std::num::Wrapping(-7),
            title: Some('ü'),
            unit: (),
        }
    }

    #[test]
    fn the_text_is_that_of_serde_json() {
        assert_eq!(to_json(&drawing()).unwrap(), serde_json::to_vec(&drawing()).unwrap());
        let value = serde_json::json!({ "a": [1, -2, 3.5, null, "x", true, {}, []] });
        assert_eq!(to_json(&value).unwrap(), serde_json::to_vec(&value).unwrap());
    }

    #[test]
    fn a_float_that_json_does_not_have_is_refused_wherever_it_is() {
        let mut bad = Vec::new();
        for change in [
            (|drawing: &mut Drawing| drawing.origin.1 = f64::NAN) as fn(&mut Drawing),
            |drawing| drawing.shapes[1] = Shape::Circle(f64::INFINITY),
            |drawing| drawing.shapes[2] = Shape::Line(0.0, f32::NEG_INFINITY),
            |drawing| drawing.shapes[3] = Shape::Box { width: 0.0, depth: Some(f32::NAN) },
            |drawing| drawing.scales.extend([("y".to_owned(), f64::NAN)]),
        ] {
            let mut drawing = drawing();
            change(&mut drawing);
            bad.push(to_json(&drawing).unwrap_err().to_string());
        }
        for error in bad {
            assert!(error.contains("which JSON does not have"), "{error}");
        }
    }

    #[derive(Serialize)]
    struct Wrapper<T>(T);

    #[derive(Serialize)]
    struct Marker;

    #[derive(Serialize)]
    struct Patch {
        #[serde(skip_serializing_if = "Option::is_none")]
        nickname: Option<Option<String>>,
    }

    #[test]
    fn a_some_that_would_become_none_is_refused_wherever_it_is() {
        let errors = [
            to_json(&Some(None::<u32>)),
            to_json(&Some(())),
            to_json(&Some(Marker)),
            to_json(&Some(Wrapper(None::<u32>))),
            to_json(&Wrapper(Some(Wrapper(Wrapper(()))))),
            to_json(&vec![None, Some(None), Some(Some(1))]),
            to_json(&Some(Some(None::<u32>))),
            to_json(&BTreeMap::from([("a", Some(None::<u32>))])),
            to_json(&Patch { nickname: Some(None) }),
            to_json(&Some(serde_json::Value::Null)),
        ];
        for error in errors {
            let text = error.unwrap_err().to_string();
            assert!(text.contains("which JSON cannot tell from `None`; use an enum"), "{text}");
        }
    }

    #[test]
    fn other_options_are_accepted() {
        let text = |json: Result<Vec<u8>, _>| String::from_utf8(json.unwrap()).unwrap();
        assert_eq!(text(to_json(&None::<Option<u32>>)), "null");
        assert_eq!(text(to_json(&Some(Some(1)))), "1");
        assert_eq!(text(to_json(&Some(vec![None::<u32>]))), "[null]");
        assert_eq!(text(to_json(&Some((None::<u32>, ())))), "[null,null]");
        assert_eq!(text(to_json(&Some(Patch { nickname: None }))), "{}");
        assert_eq!(text(to_json(&Wrapper(()))), "null");
        assert_eq!(text(to_json(&Some(Shape::Nothing))), "\"Nothing\"");
        assert_eq!(text(to_json(&Ok::<_, u32>(None::<u32>))), "{\"Ok\":null}");
    }
}
