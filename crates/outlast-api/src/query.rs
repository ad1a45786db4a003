//! Queries of URLs, as types.

use std::fmt::Display;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::problem::Problem;

/// The characters that are written as they are.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// The characters that are written as they are in a path.
const PATH_ENCODED: &AsciiSet = &ENCODED.add(b':');

/// A part of a path, with everything encoded that could end it.
pub fn path_segment(text: &str) -> String {
    // `.` and `..` would be resolved by a proxy.
    if !text.is_empty() && text.bytes().all(|byte| byte == b'.') {
        return "%2E".repeat(text.len());
    }
    utf8_percent_encode(text, PATH_ENCODED).to_string()
}

/// A query of a URL, as a type.
pub trait QueryPairs: Sized {
    /// Reads the parameters of a query. Parameters that it does not know are refused.
    ///
    /// # Errors
    ///
    /// `invalid_request`, with the parameter.
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem>;

    /// Writes the parameters.
    fn write_query(&self, writer: &mut QueryWriter);

    /// Reads the text of a query.
    ///
    /// # Errors
    ///
    /// `invalid_request`, with the parameter.
    fn from_query(query: &str) -> Result<Self, Problem> {
        let mut reader = QueryReader::new(query)?;
        let read = Self::read_query(&mut reader)?;
        reader.finish()?;
        Ok(read)
    }

    /// The text of the query, without `?`.
    fn to_query(&self) -> String {
        let mut writer = QueryWriter::default();
        self.write_query(&mut writer);
        writer.finish()
    }
}

/// Reads the parameters of a query one after the other.
#[derive(Debug)]
pub struct QueryReader {
    pairs: Vec<(String, String)>,
}

impl QueryReader {
    /// Reads the text of a query.
    ///
    /// # Errors
    ///
    /// `invalid_request` if a name or value is not UTF-8.
    pub fn new(query: &str) -> Result<Self, Problem> {
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            let decoded = percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned());
            decoded
                .map_err(|_| Problem::field("", format!("the query contains `{text}`, which is not UTF-8")))
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        Ok(Self { pairs: pairs.collect::<Result<_, Problem>>()? })
    }

    /// All values of a parameter.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        self.pairs.extract_if(.., |(found, _)| found == name).map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may stand once.
    ///
    /// # Errors
    ///
    /// `invalid_request` if it stands several times.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            count => {
                Err(Problem::field(format!("?{name}"), format!("it stands {count} times; give it once")))
            }
        }
    }

    /// The value of a parameter, as a type.
    ///
    /// # Errors
    ///
    /// `invalid_request` if it is not a value of the type, or stands several times.
    pub fn parse<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        self.text(name)?.map(|text| parse(name, &text)).transpose()
    }

    /// All values of a parameter, as a type.
    ///
    /// # Errors
    ///
    /// `invalid_request` if one is not a value of the type.
    pub fn parse_all<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Vec<T>, Problem> {
        self.all(name).iter().map(|text| parse(name, text)).collect()
    }

    /// Refuses the parameters that nobody has read.
    ///
    /// # Errors
    ///
    /// `invalid_request`, with the first of them.
    pub fn finish(self) -> Result<(), Problem> {
        match self.pairs.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::field(format!("?{name}"), "there is no such parameter")),
        }
    }
}

fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| Problem::field(format!("?{name}"), error.to_string()))
}

/// Writes the parameters of a query.
#[derive(Debug, Default)]
pub struct QueryWriter {
    query: String,
}

impl QueryWriter {
    /// Adds a parameter, if it has a value.
    pub fn set(&mut self, name: &str, value: Option<impl Display>) {
        let Some(value) = value else { return };
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(name);
        self.query.push('=');
        self.query.extend(utf8_percent_encode(&value.to_string(), ENCODED));
    }

    /// Adds a parameter for each value.
    pub fn set_all(&mut self, name: &str, values: impl IntoIterator<Item = impl Display>) {
        values.into_iter().for_each(|value| self.set(name, Some(value)));
    }

    /// The text of the query.
    pub fn finish(self) -> String {
        self.query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_what_nobody_reads_is_refused() {
        let mut reader = QueryReader::new("a=1&b=x+y%26z&a=2&c").unwrap();
        assert_eq!(reader.parse_all::<u32>("a").unwrap(), [1, 2]);
        assert_eq!(reader.text("b").unwrap().as_deref(), Some("x y&z"));
        let problem = reader.finish().unwrap_err();
        assert_eq!(problem.errors[0].pointer, "?c");
    }

    #[test]
    fn a_part_of_a_path_cannot_leave_it() {
        assert_eq!(path_segment("rating"), "rating");
        assert_eq!(path_segment("a/b?c#d e:"), "a%2Fb%3Fc%23d%20e%3A");
        assert_eq!(path_segment(".."), "%2E%2E");
        assert_eq!(path_segment("ü"), "%C3%BC");
    }

    #[test]
    fn a_value_that_does_not_fit_names_its_parameter() {
        let mut reader = QueryReader::new("limit=many").unwrap();
        assert_eq!(reader.parse::<usize>("limit").unwrap_err().errors[0].pointer, "?limit");
        assert!(QueryReader::new("a=%ff").is_err());
        assert!(QueryReader::new("a=1&a=2").unwrap().text("a").is_err());
    }
}
