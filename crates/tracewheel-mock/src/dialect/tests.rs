use super::*;

#[test]
fn a_path_has_one_dialect_and_what_stands_in_its_braces() {
    let asked = |path| hole("/v1beta/models/{model}:generateContent", path).map(unescape);
    assert_eq!(asked("/v1beta/models/g-3%205:generateContent").as_deref(), Some("g-3 5"));
    assert_eq!(asked("/v1beta/models/:generateContent"), None);
    assert_eq!(asked("/v1beta/models/g:streamGenerateContent"), None);
    assert!(find("/v1/messages").is_some() && find("/v1/messages/x").is_none());
    for path in paths() {
        let serving = DIALECTS.iter().filter(|dialect| dialect.paths().contains(&path));
        assert_eq!(serving.count(), 1, "{path}");
    }
}

#[test]
fn broken_escapes_stay_as_they_are() {
    assert_eq!(unescape("a%2Fb%"), "a/b%");
    assert_eq!(unescape("%zz%4"), "%zz%4");
}

#[test]
fn every_path_stands_in_the_docs() {
    let page = include_str!("../../../../docs/mock.md");
    for path in paths() {
        // The deployments' other routes stand there by their ends.
        let end = path.strip_prefix("/openai/deployments/{deployment}").unwrap_or(path);
        let written = [format!("POST {path}`"), format!("`{path}`"), format!("`…{end}`")];
        assert!(written.iter().any(|text| page.contains(text)), "{path}");
    }
}
