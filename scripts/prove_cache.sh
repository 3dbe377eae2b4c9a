#!/usr/bin/env bash
# Replays a Mooncake trace of conversations against the mock, with a cache that never forgets, and holds the share of input tokens
# that the mock reports as cached against the trace's own.
#
#     scripts/prove_cache.sh mooncake_conversation.jsonl [SPEED]
#
# TRACEWHEEL names the binary (target/release/tracewheel without it), OUT the folder for what is made (a temporary one). SPEED is 60
# without another, ONLY the runs to make (all without it). Prints a line a run and ends with 1 where a measured share is further
# than a point from what it should be. Needs python3.
set -euo pipefail
trace=$1 speed=${2:-60}
binary=$(realpath "${TRACEWHEEL:-target/release/tracewheel}")
trace=$(realpath "$trace")
if [ -n "${OUT:-}" ]; then mkdir -p "$OUT"; else OUT=$(mktemp -d); fi
cd "$OUT"

cat > mock.toml <<'TOML'
# An engine that is never the bottleneck, and a cache that never forgets.
[engine]
max_running = 4096
max_batched_tokens = 1_000_000
queue_limit = 100_000
max_context_tokens = 1_000_000
step_base_us = 100
decode_us_per_sequence = 0
prefill_us_per_token = 0
natural_output_tokens = 1
[cache]
capacity_blocks = 100_000_000
TOML
"$binary" ingest "$trace" -o trace.parquet
"$binary" mock --listen 127.0.0.1:0 --config mock.toml 2> mock.log &
mock=$!
trap 'kill -INT $mock 2> /dev/null || true; wait $mock || true' EXIT
for _ in $(seq 100); do
    url=$(grep -o 'http://[0-9.:]*' mock.log | head -n 1) && break
    sleep 0.1
done

wide=lateness_ceiling=1h,lateness_floor=1h,gap_distance_ceiling=1h,gap_distance_floor=1h
failed=0
# NAME, what the measured share must be in per cent (or - where the prediction is all that is known), flags.
run() {
    local name=$1 share=$2
    shift 2
    case " ${ONLY:-$name} " in *" $name "*) ;; *) return 0 ;; esac
    "$binary" replay trace.parquet --target "$url" --protocol openai-chat --model m --lengths cap --speed "$speed" \
        --fidelity "$wide" --json "$@" > "$name.json" 2> "$name.log" || { cat "$name.log"; exit 1; }
    python3 - "$name" "$share" <<'PYTHON' || failed=1
import json, sys
name, share = sys.argv[1:]
document = json.load(open(f"{name}.json"))
both, counts, prime = document["run"]["cached"]["both"], document["run"]["counts"], document["process"]["prime"]
measured, predicted = 100 * both["measured_share"], 100 * both["predicted_share"]
wanted = predicted if share == "-" else float(share)
ahead = f"; {prime['ok']} requests, {prime['input_tokens']} tokens ahead in {prime['took_ns'] / 1e9:.1f} s" if prime else ""
print(f"{name}: {counts['ok']} of {counts['planned']} ok, measured {measured:.2f} %, predicted {predicted:.2f} %, wanted {wanted:.2f} %{ahead}")
sys.exit(counts["ok"] != counts["planned"] or abs(measured - wanted) > 1 or abs(measured - predicted) > 1)
PYTHON
}
run natural 37.36
run again - --limit 1000
run cold 0 --cache cold --limit 1000
run window - --from 5m --to 10m
run window-prime 37 --from 5m --to 10m --prime all
run window-reused 37 --from 5m --to 10m --prime all --prime-prefixes reused
run window-prime-1m - --from 5m --to 10m --prime 1m
exit $failed
