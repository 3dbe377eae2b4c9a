//! HTTP/2 as a client of another library sees it, on the port that also speaks HTTP/1.1.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use serde_json::Value;
use tokio::net::TcpStream;
use tracewheel_mock::{FaultRule, MockConfig};

use crate::client::{Client, stream_body};
use crate::{fast, some, start};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn connect(addr: SocketAddr) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::task::spawn_local(async move {
        let _ended = connection.await;
    });
    sender
}

async fn ask(sender: &mut SendRequest<Bytes>, body: String) -> ResponseFuture {
    let request = Request::post("http://mock/v1/chat/completions").body(()).unwrap();
    std::future::poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    let (response, mut upload) = sender.send_request(request, false).unwrap();
    upload.send_data(body.into(), true).unwrap();
    response
}

async fn text(response: Response<RecvStream>) -> Result<String, h2::Error> {
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    Ok(String::from_utf8(all).unwrap())
}

fn fault(rule: &str) -> Vec<FaultRule> {
    MockConfig::from_toml(&format!("[[fault]]\nname = \"r\"\n{rule}")).unwrap().fault
}

#[test]
fn both_versions_are_spoken_on_one_port_and_streams_of_a_connection_run_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("witness.jsonl");
    let mock = start(MockConfig { witness_log: Some(log.clone()), ..fast() });
    let addr = mock.local_addr();
    run(async {
        let mut sender = connect(addr).await;
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(ask(&mut sender, stream_body("x", 5, 7)).await);
        }
        for answer in answers {
            let response = answer.await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(!response.headers().contains_key("connection"));
            let text = text(response).await.unwrap();
            assert_eq!(
                (text.matches("\"content\"").count(), text.ends_with("data: [DONE]\n\n")),
                (8, true),
                "{text}"
            );
        }
    });
    assert_eq!(Client::connect(addr).chat(&stream_body("x", 5, 1)).status, 200);
    let summary = mock.shutdown().unwrap();
    assert_eq!((summary.connections, summary.requests), (2, 21));
    let lines = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let at = |name: &str| line[name].as_i64().unwrap_or_else(|| panic!("{name}: {line}"));
        let tokens = line["token_mono_ns"].as_array().unwrap();
        assert_eq!(tokens.len() as i64, at("completion_tokens"));
        assert!(at("arrival_user_mono_ns") <= tokens[0].as_i64().unwrap());
        assert!(tokens.last().unwrap().as_i64().unwrap() <= at("end_mono_ns"));
        assert_eq!(line["client_gone"], false);
    }
}

#[test]
fn a_fault_ends_its_stream_with_a_code_and_no_other_stream() {
    for (kind, reason) in [("reset", Reason::INTERNAL_ERROR), ("close", Reason::CANCEL)] {
        for (point, head) in [("", false), ("after_chunks = 2\n", true)] {
            let rule = format!("kind = \"{kind}\"\n{point}times = 1");
            let mock = start(MockConfig { fault: fault(&rule), ..fast() });
            run(async {
                let mut sender = connect(mock.local_addr()).await;
                let hit = ask(&mut sender, stream_body("x", 5, 7)).await;
                let spared = ask(&mut sender, stream_body("y", 5, 7)).await;
                let error = match hit.await {
                    Ok(response) => {
                        assert!(head, "{rule}");
                        text(response).await.unwrap_err()
                    }
                    Err(error) => error,
                };
                assert_eq!((error.is_reset(), error.reason()), (true, Some(reason)), "{rule}");
                assert!(text(spared.await.unwrap()).await.unwrap().ends_with("data: [DONE]\n\n"));
                // The connection is as good as before.
                let next = ask(&mut sender, stream_body("z", 5, 1)).await;
                assert_eq!(next.await.unwrap().status(), 200);
            });
            assert_eq!(mock.shutdown().unwrap().faults, [("r".to_owned(), 1)]);
        }
    }
}

#[test]
fn a_connection_says_goodbye_with_its_last_answer_and_lets_it_end() {
    let mut config = fast();
    config.http.close_after_answers = some(3);
    let mock = start(config);
    run(async {
        let mut sender = connect(mock.local_addr()).await;
        for _ in 0..3 {
            let answer = ask(&mut sender, stream_body("x", 5, 3)).await;
            assert!(text(answer.await.unwrap()).await.unwrap().ends_with("data: [DONE]\n\n"));
        }
        let refused = loop {
            tokio::task::yield_now().await;
            let ready = std::future::poll_fn(|cx| sender.poll_ready(cx)).await;
            if let Err(error) = ready {
                break error;
            }
        };
        assert!(refused.is_go_away() && refused.is_remote() || refused.is_io(), "{refused:?}");
    });
}

#[test]
fn no_more_streams_are_allowed_than_told() {
    let mut config = fast();
    config.http.max_concurrent_streams = some(7).unwrap();
    let mock = start(config);
    run(async {
        let mut sender = connect(mock.local_addr()).await;
        let answer = ask(&mut sender, stream_body("x", 5, 1)).await;
        assert_eq!(answer.await.unwrap().status(), 200);
        assert_eq!(sender.current_max_send_streams(), 7);
    });
}
