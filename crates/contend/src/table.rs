//! Tables as Arrow IPC files: what results are stored as, and what Python gets.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};

/// A table in the making: columns of equal length.
#[derive(Default)]
pub struct Table {
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
}

impl Table {
    fn column(mut self, name: &str, kind: DataType, nullable: bool, column: ArrayRef) -> Self {
        self.fields.push(Field::new(name, kind, nullable));
        self.columns.push(column);
        self
    }

    /// A column of counts, or of nanoseconds.
    pub fn u64(self, name: &str, values: impl Iterator<Item = u64>) -> Self {
        self.column(name, DataType::UInt64, false, Arc::new(UInt64Array::from_iter_values(values)))
    }

    /// A column of counts of which some are unknown.
    pub fn maybe_u64(self, name: &str, values: impl Iterator<Item = Option<u64>>) -> Self {
        self.column(name, DataType::UInt64, true, Arc::new(UInt64Array::from_iter(values)))
    }

    /// A column of small signed numbers.
    pub fn i64(self, name: &str, values: impl Iterator<Item = i64>) -> Self {
        let values = arrow_array::Int64Array::from_iter_values(values);
        self.column(name, DataType::Int64, false, Arc::new(values))
    }

    /// A column of ratios.
    pub fn f64(self, name: &str, values: impl Iterator<Item = f64>) -> Self {
        self.column(name, DataType::Float64, false, Arc::new(Float64Array::from_iter_values(values)))
    }

    /// A column of words.
    pub fn words<S: AsRef<str>>(self, name: &str, values: impl Iterator<Item = S>) -> Self {
        self.column(name, DataType::Utf8, false, Arc::new(StringArray::from_iter_values(values)))
    }

    /// A column of words of which some are missing.
    pub fn maybe_words(self, name: &str, values: impl Iterator<Item = Option<String>>) -> Self {
        self.column(name, DataType::Utf8, true, Arc::new(StringArray::from_iter(values)))
    }

    /// The bytes of an Arrow IPC file, its columns compressed: those of a timeline are long and even.
    pub fn into_ipc(self) -> Vec<u8> {
        let schema = Arc::new(Schema::new(self.fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), self.columns).expect("columns of equal length");
        let mut out = Vec::new();
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
        let written = options
            .and_then(|options| FileWriter::try_new_with_options(&mut out, &schema, options))
            .and_then(|mut w| w.write(&batch).and_then(|()| w.finish()));
        written.expect("writing to memory cannot fail");
        out
    }
}
