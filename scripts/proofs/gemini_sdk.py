"""Google's own client against the mock: content streamed and whole, thoughts, cached input, refusals."""

import importlib.metadata

from google import genai
from google.genai import errors, types

from proof import QUICK, check, check_that, mock, refused

PROMPT = " ".join(["word"] * 100)


def client_of(mock_url):
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=mock_url))


def content(mock_url):
    print("content")
    client = client_of(mock_url)
    ask = dict(model="g", contents=PROMPT, config=types.GenerateContentConfig(max_output_tokens=7))
    whole = client.models.generate_content(**ask)
    check("prompt tokens", whole.usage_metadata.prompt_token_count, 100)
    check("cached tokens of the first", whole.usage_metadata.cached_content_token_count, None)
    check("finish reason", whole.candidates[0].finish_reason, types.FinishReason.MAX_TOKENS)
    chunks = list(client.models.generate_content_stream(**ask))
    check("streamed text", "".join(chunk.text or "" for chunk in chunks), whole.text)
    check("cached tokens of the second", chunks[-1].usage_metadata.cached_content_token_count, 96)
    check("output tokens", chunks[-1].usage_metadata.candidates_token_count, 7)
    check("finish reason of the stream", chunks[-1].candidates[0].finish_reason, types.FinishReason.MAX_TOKENS)
    system = types.GenerateContentConfig(max_output_tokens=1, system_instruction="be brief")
    check("prompt with a system instruction",
          client.models.generate_content(**ask | {"config": system}).usage_metadata.prompt_token_count, 102)


def thoughts(mock_url):
    print("thoughts")
    thinking = types.ThinkingConfig(thinking_budget=3, include_thoughts=True)
    config = types.GenerateContentConfig(max_output_tokens=10, thinking_config=thinking)
    client = client_of(mock_url)
    chunks = list(client.models.generate_content_stream(model="g", contents=PROMPT, config=config))
    shown = [part for chunk in chunks for part in chunk.candidates[0].content.parts if part.thought]
    check("thoughts", len(shown), 3)
    check("thought tokens", chunks[-1].usage_metadata.thoughts_token_count, 3)
    check("output tokens beside them", chunks[-1].usage_metadata.candidates_token_count, 7)


def refusals():
    print("refusals")
    limits = "[limits]\nrequests_per_minute = 60\nrequest_burst = 1\n[http]\nrequire_authorization = true\n"
    rule = '[[fault]]\nname = "f"\nkind = "status"\nstatus = 503\nmodel = "busy"\n'
    with mock(QUICK + limits + rule) as endpoint:
        client = client_of(endpoint.url)
        ask = dict(model="g", contents="a", config=types.GenerateContentConfig(max_output_tokens=1))
        busy = refused("a busy model", errors.ServerError, lambda: client.models.generate_content(**ask | {"model": "busy"}))
        check("status of a busy model", (busy.code, busy.status), (503, "UNAVAILABLE"))
        client.models.generate_content(**ask)
        error = refused("a request too many", errors.ClientError, lambda: client.models.generate_content(**ask))
        check("status", (error.code, error.status), (429, "RESOURCE_EXHAUSTED"))
        details = error.details["error"]["details"][0]
        check("the wait's kind", details["@type"], "type.googleapis.com/google.rpc.RetryInfo")
        check_that(f"the wait is a duration: {details['retryDelay']}", 0 < float(details["retryDelay"].rstrip("s")) <= 1)


with mock() as endpoint:
    content(endpoint.url)
    thoughts(endpoint.url)
refusals()
print(f"google-genai {importlib.metadata.version('google-genai')}: all equal")
