//! What a benchmark found, as JSON and as a table.

use std::fmt;

use serde::Serialize;

use super::Row;
use super::growth::Growth;
use crate::gpu::DeviceInfo;
use crate::model::{Model, Tuning};
use crate::roofline::Roofline;

/// Everything that one run measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The model's folder, or its shape and seed.
    pub model: String,
    /// The adapter.
    pub adapter: DeviceInfo,
    /// How the kernels were cut.
    pub tuning: Tuning,
    /// What the adapter can do.
    pub ceilings: Roofline,
    /// Dispatches of a decode step.
    pub decode_dispatches: usize,
    /// From the first byte to a warm model, milliseconds, for each dtype.
    pub load_ms: Vec<f64>,
    /// The measurements.
    pub rows: Vec<Row>,
    /// How the costs grow, if that was asked for.
    pub growth: Option<Growth>,
}

impl Report {
    pub(super) fn new(name: &str, model: &Model, ceilings: Roofline) -> Self {
        Self {
            model: name.to_owned(),
            adapter: model.gpu().info().clone(),
            tuning: model.tuning(),
            ceilings,
            decode_dispatches: model.decode_kernels().len(),
            load_ms: Vec::new(),
            rows: Vec::new(),
            growth: None,
        }
    }

    pub(super) fn add(&mut self, load_ms: f64, rows: Vec<Row>) {
        self.load_ms.push(load_ms);
        self.rows.extend(rows);
    }
}

/// Three digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let adapter = &self.adapter;
        writeln!(f, "{}", self.model)?;
        writeln!(
            f,
            "{} ({}, {}){}",
            adapter.description,
            adapter.vendor,
            adapter.architecture,
            if adapter.is_fallback {
                ": a software adapter, which says nothing about GPUs"
            } else {
                ""
            }
        )?;
        writeln!(
            f,
            "ceilings: read {} GB/s, multiply-add {} GFLOP/s, one of {} empty dispatches {} µs\n",
            short(self.ceilings.read_gbps),
            short(self.ceilings.fma_gflops),
            self.decode_dispatches,
            short(self.ceilings.dispatch_us)
        )?;
        writeln!(
            f,
            "| dtype | stage | length | ms (fastest to slowest) | ids/s | rate | of ceiling | with dispatches | ids equal |"
        )?;
        writeln!(
            f,
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in &self.rows {
            let unit = if row.stage == "decode" {
                "GB/s"
            } else {
                "GFLOP/s"
            };
            let [low, high] = row.spread_ms.map(short);
            let with_dispatches = row.of_ceiling_and_dispatches.map(short).unwrap_or_default();
            let ties = match row.ids.after_a_tie {
                0 => String::new(),
                n => format!(", {n} after a tie"),
            };
            writeln!(
                f,
                "| {} | {} | {} | {} ({low} to {high}) | {} | {} {unit} | {}{} | {with_dispatches} | {}{ties} |",
                row.dtype,
                row.stage,
                row.length,
                short(row.ms),
                short(row.tokens_per_s),
                short(row.rate),
                short(row.of_ceiling),
                if row.misses_bar(adapter) {
                    ": below the bar"
                } else {
                    ""
                },
                row.ids.equal,
            )?;
        }
        match &self.growth {
            Some(growth) => write!(f, "\n{growth}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(short(1234.5), "1234");
        assert_eq!(short(12.345), "12.3");
        assert_eq!(short(0.4567), "0.46");
    }
}
