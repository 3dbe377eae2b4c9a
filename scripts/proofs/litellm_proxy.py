"""LiteLLM's proxy between a replay and the mock: what comes through it, and what it makes of each API.

The proxy speaks OpenAI's and Anthropic's APIs to the replay and OpenAI's or Anthropic's to the mock, whichever the model is
configured for, and translates. What the run says of tokens is compared with what the mock computed.

Needs requirements-litellm.txt.
"""

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from proof import check, check_that, mock, program

# What the replay speaks, the model by whose name the proxy chooses what it speaks to the mock.
WAYS = [
    ("openai-chat", "as-openai"),
    ("openai-chat", "as-anthropic"),
    ("openai-completions", "as-openai"),
    ("openai-responses", "as-openai"),
    ("anthropic-messages", "as-anthropic"),
    ("anthropic-messages", "as-openai"),
]

CONFIG = """
model_list:
  - model_name: as-openai
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: k}}
  - model_name: as-anthropic
    litellm_params: {{model: anthropic/m, api_base: "{url}", api_key: k}}
litellm_settings: {{num_retries: 0, telemetry: false}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""

SUMS = """
SELECT count(*) FILTER (status = 'ok'), sum(usage_input_tokens), sum(usage_cached_tokens), sum(usage_output_tokens),
       sum(len(list_filter(events, lambda e: e.kind BETWEEN 1 AND 4)))
FROM read_parquet($run || '/attempts/*.parquet')
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def proxy(folder, mock_url):
    """Starts the proxy and waits until it answers."""
    (folder / "litellm.yaml").write_text(CONFIG.format(url=mock_url))
    port = free_port()
    command = [str(Path(sys.executable).parent / "litellm"), "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2)
            return process, f"http://127.0.0.1:{port}"
        except OSError:
            check_that("the proxy runs", process.poll() is None) if process.poll() is not None else time.sleep(0.5)
    sys.exit("NOT SO  the proxy answers within five minutes")


def main():
    import duckdb

    runs = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = [{"timestamp": 100 * n, "input_length": 100, "output_length": 20, "hash_ids": [1, 2, 10 + n]} for n in range(4)]
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        ingest = ["ingest", "t.jsonl", "-o", "t.parquet", "--block-tokens", "40"]
        subprocess.run([program(), *ingest], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with mock() as endpoint:
            process, url = proxy(folder, endpoint.url)
            try:
                for protocol, model in WAYS:
                    arguments = ["replay", "t.parquet", "--target", url, "--protocol", protocol, "--model", model]
                    done = subprocess.run(
                        [program(), *arguments, "--lengths", "cap", "--json"], cwd=folder, capture_output=True, text=True
                    )
                    # 31: a busy machine was late, which is no matter here.
                    if done.returncode not in (0, 31):
                        sys.exit(f"DIFFERENT  {protocol}, {model}: code {done.returncode}\n{done.stderr}")
                    runs.append(str(folder / json.loads(done.stdout)["run_dir"]))
            finally:
                process.terminate()
                process.wait(timeout=30)
        lines = [line for line in endpoint.lines if line["method"] == "POST" and line["status"] == 200]
        check("requests that reached the mock", len(lines), 4 * len(WAYS))
        for number, ((protocol, model), run) in enumerate(zip(WAYS, runs)):
            own = lines[4 * number : 4 * number + 4]
            print(f"{protocol} to a model {model}, asked at {own[0]['path']}")
            ok, told_input, cached, output, events = duckdb.execute(SUMS, {"run": run}).fetchone()
            total = lambda field: sum(line[field] for line in own)
            check("requests that are ok", ok, 4)
            check("output tokens", output, total("completion_tokens"))
            check("input tokens", told_input, total("prompt_tokens"))
            check("cached tokens", cached, total("cached_tokens"))
            check_that(f"{events} events for {output} tokens", 4 <= events <= output)
    print(f"litellm {importlib.metadata.version('litellm')}: all equal")


main()
