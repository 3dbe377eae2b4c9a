use super::super::complete;
use super::*;

fn completed(text: &str, mut args: ReplayArgs) -> Result<ReplayArgs, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, format!("version = 1\n{text}")).unwrap();
    std::fs::write(folder.path().join("ids"), [7; 32]).unwrap();
    std::fs::write(folder.path().join("k1"), "sk-first\n").unwrap();
    std::fs::write(folder.path().join("k2"), "sk-second\n").unwrap();
    args.scenario = Some(path);
    let (args, _) = complete(args).map_err(|failure| format!("{:#}", failure.error))?;
    // The folder goes with this function.
    args.routes.iter().try_for_each(|entry| entry.route().map(drop)).map_err(|f| format!("{:#}", f.error))?;
    Ok(args)
}

fn routes(text: &str) -> Vec<RouteEntry> {
    completed(text, ReplayArgs::default()).unwrap().routes
}

fn refused(text: &str) -> String {
    completed(text, ReplayArgs::default()).unwrap_err()
}

const TARGET: &str = "[target]\nurl = \"https://one.example\"\nprotocol = \"openai-chat\"\nmodel = \"m\"\n\
    api_key_file = \"k1\"\ntls_name = \"one.internal\"\nhttp = \"1.1\"\n\
    [protocol]\nengine = \"vllm\"\ntoken_detail = \"none\"\nheaders = { x-a = \"1\", x-b = \"2\" }\n";

#[test]
fn what_a_route_leaves_open_comes_from_the_target_but_what_belongs_to_a_server_goes_to_no_other() {
    let table = format!(
        "{TARGET}[[routes]]\nmodels = [\"a\"]\nheaders = {{ x-b = \"3\" }}\n\
         [[routes]]\nname = \"else\"\nurl = \"https://two.example\"\nmodel = \"n\"\n\
         [[routes]]\nurl = \"http://three.example\"\nprotocol = \"anthropic-messages\"\n"
    );
    let [same, other, third] = <[RouteEntry; 3]>::try_from(routes(&table)).unwrap();
    assert_eq!((same.name.as_deref(), same.model.as_deref()), (Some("1"), Some("m")));
    assert_eq!(
        (same.url.as_deref(), same.tls_name.as_deref()),
        (Some("https://one.example"), Some("one.internal"))
    );
    assert!(same.api_key_file.as_ref().unwrap().ends_with("k1"));
    assert_eq!((same.engine.as_deref(), same.http.as_deref()), (Some("vllm"), Some("1.1")));
    assert_eq!(same.headers, [("x-a", "1"), ("x-b", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!((other.name.as_deref(), other.model.as_deref()), (Some("else"), Some("n")));
    assert_eq!((&other.api_key_file, &other.tls_name), (&None, &None), "another server");
    assert_eq!((other.engine.as_deref(), other.http.as_deref()), (Some("vllm"), Some("1.1")));
    assert_eq!((third.name.as_deref(), third.engine.as_deref()), (Some("3"), None), "another protocol");
    assert!(third.headers.is_empty());
}

#[test]
fn keys_come_from_one_place_or_a_pool_and_are_told_by_the_name_of_the_place() {
    let target = "[target]\nurl = \"http://h\"\nprotocol = \"openai-chat\"\n";
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, key: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, key).unwrap();
        path
    };
    let (one, two) = (file("first", "sk-first\n"), file("second", "sk-second\n"));
    let table = format!("{target}[[routes]]\napi_key_files = [{one:?}, {two:?}]\n");
    let route = routes(&table)[0].route().ok().unwrap();
    let told: Vec<_> = route.keys.iter().map(|key| (key.from.as_str(), key.secret.expose())).collect();
    assert_eq!(told, [("file:first", "sk-first"), ("file:second", "sk-second")]);
    for (keys, said) in [
        ("api_keys_env = []", "its pool of keys is empty"),
        ("api_key_env = \"A\"\napi_keys_env = [\"B\"]", "a key comes from one of"),
        ("api_keys_env = [\"A\", \"A\"]", "its pool names env:A twice"),
        ("api_key_env = \"NO_SUCH_VARIABLE_HERE\"", "NO_SUCH_VARIABLE_HERE is not set"),
        (
            "headers_env = { x-k = \"NO_SUCH_VARIABLE_HERE\" }",
            "NO_SUCH_VARIABLE_HERE of the header x-k is not set",
        ),
    ] {
        let told = refused(&format!("{target}[[routes]]\nname = \"r\"\n{keys}\n"));
        assert!(told.contains(said) && !told.contains("sk-"), "{keys}: {told}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_route_and_the_remedy() {
    let target = "[target]\nurl = \"http://h\"\nprotocol = \"openai-chat\"\n";
    for (table, said) in [
        (
            "[[routes]]\nmodels = []\n",
            "[[routes]] 1: models is empty, so the route takes nothing: leave it out",
        ),
        ("[[routes]]\nmodel = \"a\"\nmodells = [\"b\"]\n", "unknown field `modells`"),
        ("[[routes]]\nprotocol = \"openai-chta\"\n", "did you mean `openai-chat`?"),
        ("[[routes]]\noperations = [\"chats\"]\n", "operations: `chats` is none of chat, "),
        ("[[routes]]\nname = \"x\"\n[[routes]]\nname = \"x\"\n", "two have the name \"x\""),
        ("[[routes]]\nname = \"2\"\n[[routes]]\n", "two have the name \"2\""),
        ("[[routes]]\ntenant_hashes = [\"acme\"]\n", "\"acme\" is no keyed hash"),
        ("[[routes]]\nlengths = \"long\"\n", "lengths: "),
    ] {
        let told = refused(&format!("{target}{table}"));
        assert!(told.contains(said), "{table}: {told}");
    }
    assert!(refused("[[routes]]\n").contains("it has no url, and [target] has none"));
    assert!(
        refused("[[routes]]\nurl = \"http://h\"\n").contains("it has no protocol, and [target] has none")
    );
}

#[test]
fn flags_that_name_one_target_are_refused_beside_routes() {
    let table = "[target]\nurl = \"http://h\"\nprotocol = \"openai-chat\"\n[[routes]]\n";
    for flags in [
        ReplayArgs { target: Some("http://x".to_owned()), ..ReplayArgs::default() },
        ReplayArgs { model: Some("m".to_owned()), ..ReplayArgs::default() },
        ReplayArgs { api_key_env: Some("K".to_owned()), ..ReplayArgs::default() },
    ] {
        let told = completed(table, flags).unwrap_err();
        assert!(told.contains("is for one target") && told.contains("--scenario"), "{told}");
    }
    let speed = ReplayArgs { speed: Some("2".to_owned()), ..ReplayArgs::default() };
    assert!(completed(table, speed).is_ok());
}

#[test]
fn tenants_are_found_by_the_key_of_the_import_and_leave_the_scenario_only_as_hashes() {
    let table = "id_key_file = \"ids\"\n[target]\nurl = \"http://h\"\nprotocol = \"openai-chat\"\n\
        [[routes]]\ntenants = [\"acme\"]\ntenant_hashes = [17, \"18446744073709551615\"]\n";
    let entry = &routes(table)[0];
    let hash = tracewheel_ingest::tenant_hash(&[7; 32], "acme");
    let route = entry.route().ok().unwrap();
    assert_eq!(route.takes.tenant_hashes, [17, u64::MAX, hash]);
    let written = toml::to_string(entry).unwrap();
    assert!(!written.contains("acme") && written.contains(&hash.to_string()), "{written}");
    let told = refused(&table.replace("\"ids\"", "\"no-such-file\""));
    assert!(told.contains("tenant_hashes") && told.contains("no-such-file"), "{told}");
}

#[test]
fn the_page_names_every_key() {
    let page = include_str!("../../../../../docs/scenario.md");
    let section = page.split("### Routes").nth(1).unwrap().split("\n### ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let on_page: BTreeSet<&str> = rows.collect();
    let error = toml::from_str::<RouteEntry>("no-such-key = 1\n").unwrap_err().to_string();
    let expected = error.split("expected ").nth(1).unwrap();
    let in_code: BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
    assert_eq!(on_page, in_code);
}
