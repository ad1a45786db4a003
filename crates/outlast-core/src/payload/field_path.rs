//! The path of the field in which a JSON text cannot be decoded.
//!
//! The errors of `serde` do not name the field of a value with the wrong type. So a text that cannot be decoded is
//! decoded again by a deserializer that records its path. Names of fields come from the type, never from the text: the
//! keys of a map may be data, and are shown as `*`.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

/// The path of the field of a `T` that cannot be decoded, such as `items[2].price`; `None` if that is the whole value.
pub(super) fn unreadable_field<T: DeserializeOwned>(json: &[u8]) -> Option<String> {
    let path = FieldPath::default();
    let mut json = serde_json::Deserializer::from_slice(json);
    T::deserialize(WithPath { inner: &mut json, path: &path, key: None }).err()?;
    path.failed.into_inner()
}

/// The current path of the deserializer, and the path at which it failed.
#[derive(Default)]
struct FieldPath {
    segments: RefCell<Vec<PathSegment>>,
    failed: RefCell<Option<String>>,
}

#[derive(Clone, Copy)]
enum PathSegment {
    Field(&'static str),
    Index(usize),
    /// A key of a map, which is not a field of a type.
    Key,
}

impl FieldPath {
    fn within<T, E>(&self, segment: PathSegment, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.segments.borrow_mut().push(segment);
        let read = read();
        let mut failed = self.failed.borrow_mut();
        match &read {
            // The caller ignored the failure, for example in an untagged enum.
            Ok(_) => *failed = None,
            Err(_) => drop(failed.get_or_insert_with(|| self.to_string())),
        }
        self.segments.borrow_mut().pop();
        read
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.borrow().iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            match segment {
                PathSegment::Field(name) => write!(f, "{dot}{name}")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key => write!(f, "{dot}*")?,
            }
        }
        Ok(())
    }
}

/// Records the key of a map if it is a field of the type.
struct MapKey {
    fields: &'static [&'static str],
    segment: Cell<PathSegment>,
}

impl MapKey {
    fn record(&self, text: &str) {
        if let Some(field) = self.fields.iter().find(|field| **field == text) {
            self.segment.set(PathSegment::Field(field));
        }
    }
}

/// A value that `serde` passes on, with the current path.
struct WithPath<'t, T> {
    inner: T,
    path: &'t FieldPath,
    /// Where a text is recorded that is decoded as a key.
    key: Option<&'t MapKey>,
}

impl<'t, T> WithPath<'t, T> {
    /// Another value at the same path, which is not a key.
    fn wrap<U>(&self, inner: U) -> WithPath<'t, U> {
        WithPath { inner, path: self.path, key: None }
    }
}

/// A visitor, with the fields of its type.
struct VisitorWithPath<'t, V> {
    inner: WithPath<'t, V>,
    fields: &'static [&'static str],
}

impl<'t, T> WithPath<'t, T> {
    fn visitor<V>(self, visitor: V, fields: &'static [&'static str]) -> (T, VisitorWithPath<'t, V>) {
        let Self { inner, path, key } = self;
        (inner, VisitorWithPath { inner: WithPath { inner: visitor, path, key }, fields })
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for WithPath<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        let Self { inner, path, key } = self;
        inner.deserialize(WithPath { inner: deserializer, path, key })
    }
}

macro_rules! deserialize {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let (inner, visitor) = self.visitor(visitor, &[]);
            inner.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithPath<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.deserialize_tuple_struct(name, length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, fields);
        inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $value:ty)*) => {$(
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.inner.inner.$method(value)
        }
    )*};
}

macro_rules! visit_text {
    ($($method:ident: $value:ty)*) => {$(
        fn $method<E: Error>(self, text: $value) -> Result<V::Value, E> {
            if let Some(key) = self.inner.key {
                key.record(&text);
            }
            self.inner.inner.$method(text)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for VisitorWithPath<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.inner.expecting(f)
    }

    visit! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128 visit_u8: u8
        visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128 visit_f32: f32 visit_f64: f64 visit_char: char
        visit_bytes: &[u8] visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    visit_text! { visit_str: &str visit_borrowed_str: &'de str visit_string: String }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.inner.wrap(deserializer);
        self.inner.inner.visit_some(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let WithPath { inner, path, key } = self.inner;
        inner.visit_newtype_struct(WithPath { inner: deserializer, path, key })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = TrackedElements { inner: self.inner.wrap(elements), next: 0 };
        self.inner.inner.visit_seq(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let inner = self.inner.wrap(entries);
        let entries = TrackedEntries { inner, fields: self.fields, segment: PathSegment::Key };
        self.inner.inner.visit_map(entries)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.inner.wrap(variant);
        self.inner.inner.visit_enum(variant)
    }
}

struct TrackedElements<'t, A> {
    inner: WithPath<'t, A>,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for TrackedElements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let (seed, index) = (self.inner.wrap(seed), self.next);
        self.next += 1;
        let elements = &mut self.inner.inner;
        self.inner.path.within(PathSegment::Index(index), || elements.next_element_seed(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.inner.size_hint()
    }
}

struct TrackedEntries<'t, A> {
    inner: WithPath<'t, A>,
    fields: &'static [&'static str],
    /// The path segment of the next value.
    segment: PathSegment,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for TrackedEntries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let key = MapKey { fields: self.fields, segment: Cell::new(PathSegment::Key) };
        let seed = WithPath { inner: seed, path: self.inner.path, key: Some(&key) };
        let read = self.inner.inner.next_key_seed(seed)?;
        self.segment = key.segment.get();
        Ok(read)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.inner.wrap(seed);
        let entries = &mut self.inner.inner;
        self.inner.path.within(self.segment, || entries.next_value_seed(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.inner.size_hint()
    }
}

impl<'de, 't, A: EnumAccess<'de>> EnumAccess<'de> for WithPath<'t, A> {
    type Error = A::Error;
    type Variant = WithPath<'t, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        let Self { inner, path, .. } = self;
        let (value, variant) = inner.variant_seed(seed)?;
        Ok((value, WithPath { inner: variant, path, key: None }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for WithPath<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        let (inner, visitor) = self.visitor(visitor, &[]);
        inner.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (inner, visitor) = self.visitor(visitor, fields);
        inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Order {
        id: u32,
        #[serde(default)]
        items: Vec<Item>,
        #[serde(default, rename = "ship to")]
        ship_to: Option<Target>,
        #[serde(default)]
        prices: BTreeMap<String, u32>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Item {
        price: Price,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Price(u64);

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    enum Target {
        Shop,
        Home { street: String },
        Both(u32, u32),
    }

    #[test]
    fn the_field_is_named_by_the_type_and_never_by_the_text() {
        let cases = [
            (r#""secret""#, None),
            (r#"{"items":[]}"#, None),
            (r#"{"id":"secret"}"#, Some("id")),
            (r#"{"id":1,"items":[{"price":1},{"price":"secret"}]}"#, Some("items[1].price")),
            (r#"{"id":1,"items":[{"secret":1}]}"#, Some("items[0]")),
            (r#"{"id":1,"ship to":{"Home":{"street":7}}}"#, Some("ship to.street")),
            (r#"{"id":1,"ship to":{"Both":[1,"secret"]}}"#, Some("ship to[1]")),
            (r#"{"id":1,"ship to":"secret"}"#, Some("ship to")),
            (r#"{"id":1,"prices":{"secret":"x"}}"#, Some("prices.*")),
            (r#"{"secret":[1],"id":"x"}"#, Some("id")),
        ];
        for (json, field) in cases {
            assert_eq!(unreadable_field::<Order>(json.as_bytes()).as_deref(), field, "{json}");
        }
        assert_eq!(unreadable_field::<Order>(br#"{"id":1,"ship to":"Shop"}"#), None, "it can be read");
        assert_eq!(unreadable_field::<(u32, Price)>(br#"[1,"x"]"#).as_deref(), Some("[1]"));
    }
}
