#!/usr/bin/env bash
# Shows: the whole way without an accelerator. A mock endpoint plays production and writes its gateway log; the log is
# ingested like anyone's; the timeline is replayed against the endpoint again; the run is compared with the log.
#
# Usage: examples/first-replay.sh [FOLDER]     (TRACEWHEEL names the program where it is not on the PATH)
set -euo pipefail

tracewheel=${TRACEWHEEL:-tracewheel}
traces=$(cd "$(dirname "$0")/../fixtures/traces" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
mock=
trap '[ -z "$mock" ] || kill "$mock" 2>/dev/null || true' EXIT

# Starts a mock on a free port, with what further arguments say; its address, which it prints, is in $target.
start_mock() {
  rm -f mock.url # the last one's address must not be taken for this one's
  "$tracewheel" mock --listen 127.0.0.1:0 "$@" >mock.url &
  mock=$!
  until target=$(grep 'http://' mock.url 2>/dev/null); do
    kill -0 "$mock" # a mock that ended by itself ends this script
    sleep 0.1
  done
}

# Ends it as Ctrl-C does: its logs are complete afterwards.
stop_mock() {
  kill -INT "$mock"
  wait "$mock"
  mock=
}

# Replays. 31 says that this machine was too busy to keep the schedule: that may be so, and is no failure of this script.
replay() {
  local code=0
  "$tracewheel" replay "$@" --protocol openai-chat --model m || code=$?
  [ "$code" -eq 0 ] || [ "$code" -eq 31 ]
}

echo "== 1. a production: ten seconds of a published trace drive an endpoint, whose gateway writes a log"
"$tracewheel" ingest "$traces/azure2023_conv_20s.csv" -o traffic.parquet
start_mock --gateway-log gateway.jsonl
replay traffic.parquet --target "$target" --to 10s -o clients
stop_mock
head -n 1 gateway.jsonl

echo "== 2. the log becomes a timeline"
"$tracewheel" ingest gateway.jsonl -o yesterday.parquet --ttft-kind first_chunk \
  --map 'arrival=ts,request_id=request_id,attempt=retry_count,status=status,stream=stream' \
  --map 'input_tokens=prompt_tokens,output_tokens=completion_tokens,cached_tokens=cached_tokens' \
  --map 'ttft=ttft_ms:ms,e2e=duration_ms:ms'
"$tracewheel" inspect yesterday.parquet

echo "== 3. the timeline is replayed, and the run compared with the log"
start_mock
replay yesterday.parquet --target "$target"
stop_mock
run=$(echo runs/*)
code=0
"$tracewheel" compare "$run" --with yesterday.parquet || code=$?
# 11 says that the replay was slower than the log, 31 that the run was too late to be compared: as above.
[ "$code" -eq 0 ] || [ "$code" -eq 11 ] || [ "$code" -eq 31 ]

echo "== 4. the run can be summed up again at any time"
"$tracewheel" inspect "$run"
echo "everything is in $folder"
