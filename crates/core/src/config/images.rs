//! What an administrator decides about the images of nodes.

use std::time::Duration;

use crate::diag::{Diagnostic, Diagnostics};
use crate::images::ImageGc;
use crate::names::ImageName;
use crate::yaml::View;

/// The name of an image that nodes have beforehand.
pub(super) fn read_name(view: &View<'_>, diags: &mut Diagnostics) -> Option<ImageName> {
    let text = view.text(diags)?;
    match ImageName::parse(text) {
        Ok(image) => Some(image),
        Err(error) => {
            // What is there may hold a password.
            diags.push(Diagnostic::error(
                &view.place,
                format!("the image's name {error}"),
            ));
            None
        }
    }
}

/// When images are given up.
pub(super) fn read_gc(view: &View<'_>, diags: &mut Diagnostics) -> Option<ImageGc> {
    const DAY: u64 = 24 * 3600;
    let mut fields = view.fields(diags)?;
    let usual = ImageGc::default();
    let mut number = |key: &str, most: u32, diags: &mut Diagnostics| {
        let view = fields.get(key)?;
        let number = view.int(diags)?;
        let fitting = u32::try_from(number)
            .ok()
            .filter(|it| (1..=most).contains(it));
        if fitting.is_none() {
            let problem = Diagnostic::error(&view.place, "out of range").found(number);
            diags.push(problem.allowed(format!("1 to {most}")));
        }
        fitting
    };
    let mut percent = |key: &str, usual: u8, diags: &mut Diagnostics| {
        let number = number(key, 100, diags);
        number.and_then(|it| u8::try_from(it).ok()).unwrap_or(usual)
    };
    let high_percent = percent("highPercent", usual.high_percent, diags);
    let low_percent = percent("lowPercent", usual.low_percent.min(high_percent), diags);
    let days = number("maxAgeDays", 36_500, diags);
    fields.no_others(&["highPercent", "lowPercent", "maxAgeDays"], diags);
    if low_percent > high_percent {
        let why = "lowPercent must not be more than highPercent";
        let found = format!("{low_percent} and {high_percent}");
        diags.push(Diagnostic::error(&view.place, why).found(found));
    }
    Some(ImageGc {
        high_percent,
        low_percent,
        max_age: days.map(|days| Duration::from_secs(u64::from(days) * DAY)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::manifest::Input;

    fn read(text: &str) -> (Config, Vec<String>) {
        let input = Input {
            name: "node.yaml".into(),
            text: text.to_owned(),
        };
        let mut diags = Diagnostics::default();
        let config = Config::default().read(&input, &mut diags);
        let told = diags.into_sorted().into_iter();
        (config, told.map(|it| it.to_string()).collect())
    }

    #[test]
    fn what_is_left_out_is_as_the_kubelet_has_it() {
        let (config, told) = read("prePull: [virtlet.cloud/cirros]\nimageGC: {maxAgeDays: 2}\n");
        assert_eq!(told, [] as [&str; 0]);
        assert_eq!(config.pre_pull[0].name(), "cirros");
        let ImageGc {
            high_percent,
            low_percent,
            max_age,
        } = config.image_gc;
        assert_eq!((high_percent, low_percent), (85, 80));
        assert_eq!(max_age, Some(Duration::from_hours(48)));
        let (config, told) = read("imageGC: {highPercent: 60}\n");
        assert_eq!((told.len(), config.image_gc.low_percent), (0, 60));
    }

    #[test]
    fn slips_are_told() {
        let (_, told) = read(
            "prePull: ['https://user:hunter2@host/x']\n\
             imageGC: {highPercent: 50, lowPercent: 70, maxAgeDays: 0, maxAge: 3}\n",
        );
        let told = told.join("\n");
        for wanted in [
            "prePull[0]: the image's name has something before an",
            "lowPercent must not be more than highPercent",
            "imageGC.maxAgeDays: out of range",
            "unknown field \"maxAge\"",
        ] {
            assert!(told.contains(wanted), "{wanted} is missing in\n{told}");
        }
        assert!(!told.contains("hunter2"), "{told}");
    }
}
