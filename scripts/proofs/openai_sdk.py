"""OpenAI's own client against the mock: chat, completions, Responses, embeddings, Azure, refusals and retries."""

import openai
from openai import AzureOpenAI, OpenAI

from proof import QUICK, check, check_that, mock, refused

PROMPT = " ".join(["word"] * 100)


def texts(mock_url):
    print("chat and completions")
    client = OpenAI(base_url=f"{mock_url}/v1", api_key="k", max_retries=0)
    ask = dict(model="m", messages=[{"role": "user", "content": PROMPT}], max_tokens=7)
    whole = client.chat.completions.create(**ask)
    check("prompt tokens", whole.usage.prompt_tokens, 100)
    check("cached tokens of the first", whole.usage.prompt_tokens_details.cached_tokens, 0)
    check("finish reason", whole.choices[0].finish_reason, "length")
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("streamed text", said, whole.choices[0].message.content)
    check("cached tokens of the second", chunks[-1].usage.prompt_tokens_details.cached_tokens, 96)
    check("completion tokens", chunks[-1].usage.completion_tokens, 7)
    refused("a parsed answer that is cut", openai.LengthFinishReasonError, lambda: client.chat.completions.parse(**ask))
    natural = ask | {"max_tokens": 1000}
    with client.chat.completions.stream(**natural) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**natural)
    check("text put together by the helper", final.choices[0].message.content, whole.choices[0].message.content)
    check("finish reason", final.choices[0].finish_reason, "stop")

    ask = dict(model="m", prompt=PROMPT, max_tokens=5)
    whole = client.completions.create(**ask)
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**ask, stream=True))
    check("completion", streamed, whole.choices[0].text)
    check("models", [model.id for model in client.models.list()], ["mock"])


def responses(mock_url):
    print("Responses")
    client = OpenAI(base_url=f"{mock_url}/v1", api_key="k", max_retries=0)
    ask = dict(model="m", input=PROMPT, max_output_tokens=16)
    whole = client.responses.create(**ask)
    check("status at the cap", whole.status, "incomplete")
    check("why", whole.incomplete_details.reason, "max_output_tokens")
    check("input tokens", whole.usage.input_tokens, 100)
    events = list(client.responses.create(**ask, stream=True))
    check("event numbers", [event.sequence_number for event in events], list(range(len(events))))
    check("first event", events[0].type, "response.created")
    check("last event", events[-1].type, "response.incomplete")
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    check("streamed text", said, whole.output_text)
    check("text of the last event", events[-1].response.output_text, said)
    check("cached tokens", events[-1].response.usage.input_tokens_details.cached_tokens, 96)
    with client.responses.stream(model="m", input=PROMPT) as stream:
        final = stream.get_final_response()
    check("status without a cap", final.status, "completed")
    check("output tokens", final.usage.output_tokens, len(final.output_text.split()))
    low = refused("a cap under 16", openai.BadRequestError, lambda: client.responses.create(**ask | {"max_output_tokens": 15}))
    check("parameter", low.param, "max_output_tokens")


def embeddings(mock_url):
    print("embeddings")
    client = OpenAI(base_url=f"{mock_url}/v1", api_key="k", max_retries=0)
    ask = dict(model="e", input=["one two", "three"], dimensions=8)
    # The client asks for base64 on its own and decodes it.
    coded = client.embeddings.create(**ask)
    plain = client.embeddings.create(**ask, encoding_format="float")
    check("vectors", [len(item.embedding) for item in coded.data], [8, 8])
    worst = max(abs(a - b) for x, y in zip(coded.data, plain.data) for a, b in zip(x.embedding, y.embedding))
    check_that("base64 and numbers are the same vectors", worst < 1e-6)
    check("tokens", coded.usage.total_tokens, 3)


def azure(mock_url):
    print("Azure")
    client = AzureOpenAI(azure_endpoint=mock_url, api_key="k", api_version="2024-10-21", max_retries=0)
    ask = dict(model="my-deployment", messages=[{"role": "user", "content": PROMPT}], max_tokens=4)
    whole = client.chat.completions.create(**ask)
    check("deployment", whole.model, "my-deployment")
    chunks = list(client.chat.completions.create(**ask, stream=True))
    check("choices of the first chunk", chunks[0].choices, [])
    filters = chunks[0].model_extra["prompt_filter_results"][0]["content_filter_results"]
    check("filtered", filters["hate"]["filtered"], False)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("streamed text", said, whole.choices[0].message.content)
    check("embedding", len(client.embeddings.create(model="e", input="a").data[0].embedding), 256)
    newer = OpenAI(base_url=f"{mock_url}/openai/v1", api_key="k", max_retries=0)
    check("newer path", newer.responses.create(model="d", input="a").status, "completed")


def refusals():
    print("refusals and retries")
    limits = "[limits]\nrequests_per_minute = 120\nrequest_burst = 1\n[http]\nrequire_authorization = true\n"
    with mock(QUICK + limits) as endpoint:
        ask = dict(model="m", messages=[{"role": "user", "content": "a"}], max_tokens=1)
        retrying = OpenAI(base_url=f"{endpoint.url}/v1", api_key="k", max_retries=3)
        for _ in range(3):
            retrying.chat.completions.create(**ask)
        once = retrying.with_options(max_retries=0)
        once.with_raw_response.models.list()

        def again():
            for _ in range(3):
                once.chat.completions.create(**ask)

        error = refused("a request too many", openai.RateLimitError, again)
        check("code", error.code, "rate_limit_exceeded")
        check_that("the wait is told", float(error.response.headers["retry-after-ms"]) > 0)
        azure_error = refused(
            "a request too many at Azure",
            openai.RateLimitError,
            lambda: [
                AzureOpenAI(
                    azure_endpoint=endpoint.url, api_key="k", api_version="2024-10-21", max_retries=0
                ).chat.completions.create(**ask)
                for _ in range(3)
            ],
        )
        check("code at Azure", azure_error.code, "429")
        keyless = {"Authorization": openai.Omit()}
        refused("no key", openai.AuthenticationError, lambda: once.chat.completions.create(**ask, extra_headers=keyless))
    lines = [line for line in endpoint.lines if line["path"] == "/v1/chat/completions"]
    waits = [
        (after["arrival_user_mono_ns"] - before["end_mono_ns"]) / 1e6
        for before, after in zip(lines, lines[1:])
        if before["status"] == 429 and after["retry_count"] == 1
    ]
    check_that(f"the client waited before its retries, ms: {[round(wait) for wait in waits]}", bool(waits) and min(waits) > 100)


def broken():
    print("errors within a stream")
    rule = '[[fault]]\nname = "f"\nkind = "stream-error"\nafter_chunks = 2\nstatus = 503\n'
    with mock(QUICK + rule) as endpoint:
        client = OpenAI(base_url=f"{endpoint.url}/v1", api_key="k", max_retries=0)
        ask = dict(model="m", messages=[{"role": "user", "content": "a"}], stream=True)
        refused("a chat that breaks off", openai.APIError, lambda: list(client.chat.completions.create(**ask)))
        events = list(client.responses.create(model="m", input="a", stream=True))
        check("a response that breaks off", events[-1].type, "response.failed")
        check("its error", events[-1].response.error.code, "server_error")


with mock() as endpoint:
    texts(endpoint.url)
    responses(endpoint.url)
    embeddings(endpoint.url)
    azure(endpoint.url)
refusals()
broken()
print(f"openai {openai.__version__}: all equal")
