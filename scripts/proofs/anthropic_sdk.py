"""Anthropic's own client against the mock: messages streamed and whole, thinking, cached input, refusals and retries."""

import anthropic
from anthropic import Anthropic

from proof import QUICK, check, check_that, mock, refused

PROMPT = " ".join(["word"] * 100)
ASK = dict(model="m", max_tokens=7, messages=[{"role": "user", "content": PROMPT}])


def messages(mock_url):
    print("messages")
    client = Anthropic(base_url=mock_url, api_key="k", max_retries=0)
    whole = client.messages.create(**ASK)
    counts = lambda usage: (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)
    check("input, written, read of the first", counts(whole.usage), (4, 96, 0))
    check("output tokens", whole.usage.output_tokens, 7)
    check("stop reason", whole.stop_reason, "max_tokens")
    with client.messages.stream(**ASK) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("streamed text", said, whole.content[0].text)
    check("input, written, read of the second", counts(final.usage), (4, 0, 96))
    check("output tokens of the stream", final.usage.output_tokens, 7)
    check("stop reason of the stream", final.stop_reason, "max_tokens")
    check_that("the request has an id", client.messages.create(**ASK)._request_id.startswith("mock-"))
    events = [event.type for event in client.messages.create(**ASK, stream=True)]
    check("events", (events[0], events[1], events[-2], events[-1]),
          ("message_start", "content_block_start", "message_delta", "message_stop"))
    check("deltas", events.count("content_block_delta"), 7)
    system = client.messages.create(**ASK | {"system": "be brief", "max_tokens": 1})
    check("input with a system prompt", sum(counts(system.usage)), 102)


def thinking(mock_url):
    print("thinking")
    client = Anthropic(base_url=mock_url, api_key="k", max_retries=0)
    ask = ASK | {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = client.messages.create(**ask)
    check("blocks", [block.type for block in whole.content], ["thinking", "text"])
    with client.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    check("thoughts", final.content[0].thinking, whole.content[0].thinking)
    check("text", final.content[1].text, whole.content[1].text)
    check("signature", final.content[0].signature, whole.content[0].signature)
    said = len(final.content[0].thinking.split()) + len(final.content[1].text.split())
    check("output tokens", final.usage.output_tokens, said)


def refusals():
    print("refusals and retries")
    rules = "".join(
        f'[[fault]]\nname = "{status}"\nkind = "status"\nstatus = {status}\nmodel = "m{status}"\n'
        for status in (401, 403, 413, 500, 529)
    )
    limits = "[limits]\nrequests_per_minute = 60\nrequest_burst = 1\n"
    with mock(QUICK + limits + rules) as endpoint:
        client = Anthropic(base_url=endpoint.url, api_key="k", max_retries=0)
        for status, kind, word in [
            (401, anthropic.AuthenticationError, "authentication_error"),
            (403, anthropic.PermissionDeniedError, "permission_error"),
            (413, anthropic.APIStatusError, "request_too_large"),
            (500, anthropic.InternalServerError, "api_error"),
            (529, anthropic.APIStatusError, "overloaded_error"),
        ]:
            try:
                client.messages.create(**ASK | {"model": f"m{status}"})
                check_that(f"{status} is an error", False)
            except kind as error:
                check(f"status and type of {status}", (error.status_code, error.body["error"]["type"]), (status, word))
                check_that("the body has the id of the head", error.body["request_id"] == error.request_id)
        raw = client.messages.with_raw_response.create(**ASK)
        check("budget", raw.headers["anthropic-ratelimit-requests-limit"], "60")
        check("left", raw.headers["anthropic-ratelimit-requests-remaining"], "0")
        check_that("reset is a time", raw.headers["anthropic-ratelimit-requests-reset"].endswith("Z"))
        error = refused("a request too many", anthropic.RateLimitError, lambda: client.messages.create(**ASK))
        check("wait, s", error.response.headers["retry-after"], "1")
        patient = client.with_options(max_retries=2)
        check("retried by the client", patient.messages.create(**ASK).stop_reason, "max_tokens")
        refused("no cap", TypeError, lambda: client.messages.create(model="m", messages=ASK["messages"]))
    retried = [line for line in endpoint.lines if line["retry_count"] > 0]
    check("the retry's status", retried[-1]["status"], 200)


def broken():
    print("errors within a stream")
    rule = '[[fault]]\nname = "f"\nkind = "stream-error"\nafter_chunks = 2\nstatus = 529\n'
    with mock(QUICK + rule) as endpoint:
        client = Anthropic(base_url=endpoint.url, api_key="k", max_retries=0)
        error = refused(
            "a stream that breaks off", anthropic.APIStatusError, lambda: list(client.messages.create(**ASK, stream=True))
        )
        check("its type", error.body["error"]["type"], "overloaded_error")


with mock() as endpoint:
    messages(endpoint.url)
    thinking(endpoint.url)
refusals()
broken()
print(f"anthropic {anthropic.__version__}: all equal")
