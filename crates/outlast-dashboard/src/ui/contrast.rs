//! The contrast of all colours, computed from the style sheet.

/// A set of colours of the style sheet, by name.
fn tokens(block: &str) -> std::collections::BTreeMap<&str, f64> {
    let pairs = block.split(';').filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"));
    pairs.map(|(name, hex)| (name, luminance(hex))).collect()
}

/// The relative luminance of a colour, by the formula of WCAG.
fn luminance(hex: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

fn ratio(one: f64, other: f64) -> f64 {
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn all_texts_have_enough_contrast_in_both_themes() {
    let style = include_str!("../../assets/outlast.css");
    let light = style.split(":root {").nth(1).unwrap().split('}').next().unwrap();
    let dark = style.split("[data-theme=\"dark\"] {").nth(1).unwrap().split('}').next().unwrap();
    let system = style.split(":not([data-theme=\"light\"]) {").nth(1).unwrap().split('}').next().unwrap();
    assert_eq!(tokens(dark), tokens(system), "the dark theme is the same in both places");
    let texts = [
        "text",
        "muted",
        "accent",
        "pending",
        "running",
        "waiting",
        "paused",
        "stuck",
        "completed",
        "compensated",
        "failed",
        "cancelled",
        "quarantined",
    ];
    for block in [light, dark] {
        let tokens = tokens(block);
        for ground in ["bg", "surface"] {
            for text in texts {
                let found = ratio(tokens[text], tokens[ground]);
                assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
            }
            assert!(ratio(tokens["border"], tokens[ground]) >= 3.0, "border on {ground}");
        }
        assert!(ratio(tokens["on-accent"], tokens["accent"]) >= 4.5);
        assert!(ratio(tokens["on-accent"], tokens["failed"]) >= 4.5);
        assert!(
            ratio(tokens["text"], tokens["hover"]) >= 7.0 && ratio(tokens["text"], tokens["selected"]) >= 7.0
        );
    }
}
