//! What `docs/mock.md` shows is what the code does.

use tracewheel_mock::MockConfig;

const PAGE: &str = include_str!("../../../docs/mock.md");

/// The text of the first fenced block of a language.
fn block(language: &str) -> String {
    let start = format!("```{language}\n");
    let (_, rest) = PAGE.split_once(&start).expect("the page has such a block");
    rest.split_once("```").expect("the block ends").0.to_owned()
}

#[test]
fn the_defaults_on_the_page_are_the_defaults() {
    assert_eq!(toml::from_str::<MockConfig>(&block("toml")), Ok(MockConfig::default()));
}

#[test]
fn the_optional_keys_on_the_page_exist_and_make_a_possible_mock() {
    let text = block("toml").replace("\n# ", "\n");
    let config: MockConfig = toml::from_str(&text).expect("every key on the page exists");
    assert_eq!(config.validate(), Ok(()));
    assert!(config.engine.kv_tokens.is_some() && config.limits.token_burst.is_some());
}

#[test]
fn every_key_is_on_the_page() {
    let every: MockConfig = toml::from_str(&block("toml").replace("\n# ", "\n")).expect("the page parses");
    let value = toml::Value::try_from(MockConfig {
        witness_log: Some("w".into()),
        gateway_log: Some("g".into()),
        ..every
    })
    .expect("a configuration is TOML");
    for (section, keys) in value.as_table().expect("a table") {
        let names: Vec<&str> = keys.as_table().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        for name in names.into_iter().chain([section.as_str()]) {
            assert!(PAGE.contains(name), "{name} is not on the page");
        }
    }
}

#[test]
fn the_description_on_the_page_is_what_describe_says() {
    let console = block("console");
    for line in MockConfig::default().describe().lines() {
        assert!(console.lines().any(|shown| shown == line), "{line:?} is not in\n{console}");
    }
}
