//! A line plot as an SVG file.

use std::fmt::Write;

/// Size of the picture and of the margins around its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 48.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 24.0;

/// A series, and the straight line through it if it has one.
pub struct Plot<'a> {
    /// What is shown, and on what.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// The points, by x.
    pub points: &'a [[f64; 2]],
    /// Value at 0 and slope of a line to draw.
    pub line: Option<[f64; 2]>,
}

impl Plot<'_> {
    /// The whole file. Both axes begin at 0, so that no growth looks larger than it is.
    pub fn svg(&self) -> String {
        let most = |axis: usize| self.points.iter().map(|p| p[axis]).fold(0.0, f64::max);
        let [x_step, y_step] = [step(most(0)), step(most(1))];
        let [x_end, y_end] = [end(most(0), x_step), end(most(1), y_step)];
        let x_of = |x: f64| LEFT + x / x_end * (WIDTH - LEFT - RIGHT);
        let y_of = |y: f64| HEIGHT - BOTTOM - y / y_end * (HEIGHT - BOTTOM - TOP);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            escaped(self.title)
        );
        // Writing to a String cannot fail.
        let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, style: &str| {
            let _ = writeln!(
                svg,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
            );
        };
        let grid = "stroke=\"#ddd\"";
        for i in 0..=(x_end / x_step).round() as usize {
            let x = x_of(i as f64 * x_step);
            line(x, y_of(0.0), x, TOP, grid);
        }
        for i in 0..=(y_end / y_step).round() as usize {
            let y = y_of(i as f64 * y_step);
            line(x_of(0.0), y, WIDTH - RIGHT, y, grid);
        }
        if let Some([at_0, slope]) = self.line {
            let last = most(0);
            line(
                x_of(0.0),
                y_of(at_0),
                x_of(last),
                y_of(at_0 + slope * last),
                "stroke=\"#888\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"",
            );
        }
        let path: Vec<String> = self
            .points
            .iter()
            .map(|[x, y]| format!("{:.1},{:.1}", x_of(*x), y_of(*y)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for [x, y] in self.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#06c\"/>",
                x_of(*x),
                y_of(*y)
            );
        }
        let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escaped(text)
            );
        };
        for i in 0..=(x_end / x_step).round() as usize {
            let value = i as f64 * x_step;
            text(
                x_of(value),
                HEIGHT - BOTTOM + 17.0,
                "middle",
                &number(value),
            );
        }
        for i in 0..=(y_end / y_step).round() as usize {
            let value = i as f64 * y_step;
            text(LEFT - 8.0, y_of(value) + 4.0, "end", &number(value));
        }
        text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            "middle",
            self.x,
        );
        text(8.0, TOP - 8.0, "start", self.y);
        svg.push_str("</svg>\n");
        svg
    }
}

/// A round step of which four to eight reach `most`.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    fits.into_iter().find(|s| *s >= rough).unwrap_or(rough)
}

fn end(most: f64, step: f64) -> f64 {
    (most / step).ceil().max(1.0) * step
}

/// At most two digits behind the point, and no zeros at the end.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Value at 0 and slope of the straight line with the least squares through the points, and the share of their variance
/// that it explains (R²).
pub fn fit(points: &[[f64; 2]]) -> ([f64; 2], f64) {
    let n = points.len() as f64;
    let mean = |axis: usize| points.iter().map(|p| p[axis]).sum::<f64>() / n;
    let [x, y] = [mean(0), mean(1)];
    let sum = |f: &dyn Fn(&[f64; 2]) -> f64| points.iter().map(f).sum::<f64>();
    let xx = sum(&|p| (p[0] - x).powi(2));
    let slope = sum(&|p| (p[0] - x) * (p[1] - y)) / xx;
    let at_0 = y - slope * x;
    let left = sum(&|p| (p[1] - at_0 - slope * p[0]).powi(2));
    let all = sum(&|p| (p[1] - y).powi(2));
    ([at_0, slope], 1.0 - left / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!((step(1000.0), end(1000.0, 200.0)), (200.0, 1000.0));
        assert_eq!((step(7.3), end(7.3, 2.0)), (2.0, 8.0));
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(1000.0), "1000");
    }

    #[test]
    fn a_line_is_found() {
        let points: Vec<[f64; 2]> = (0..9)
            .map(|i| [f64::from(i), 3.0 + 0.5 * f64::from(i)])
            .collect();
        let ([at_0, slope], share) = fit(&points);
        assert!((at_0 - 3.0).abs() < 1e-9 && (slope - 0.5).abs() < 1e-9 && share > 0.999);
    }

    #[test]
    fn the_picture_has_every_point() {
        let points = [[0.0, 1.0], [10.0, 2.0]];
        let plot = Plot {
            title: "a < b",
            x: "x",
            y: "y",
            points: &points,
            line: Some([1.0, 0.1]),
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
