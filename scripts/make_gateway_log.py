"""Writes a gateway's request log of any size, the same at every run: for measuring imports.

Usage: make_gateway_log.py --bytes 5e9 --order sorted|late|shuffled [--format jsonl|csv] > LOG

sorted    by start
late      every 20,000 rows in a scattered order among themselves, as when lines are written once an answer has ended
shuffled  the whole log in a scattered order

Each row is a function of its number. Print --map with --format to get the column map for `tracewheel ingest --map`.
"""

import argparse
import math
import sys

WINDOW = 20_000
GAP_US = 10_000
START_US = 1_795_536_000_000_000
SCATTER = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
PADDING = "text that is not kept " * 8
MODELS = ("m-large", "m-small", "m-tiny")
STATUS = (200,) * 60 + (429, 503, 200, 499)
MAPS = {
    "jsonl": "arrival=ts:unix_ms,request_id=request_id,attempt=attempt,session=session,model=model,path=path,"
    "status=status,stream=stream,ttft=timing.ttft_ms,e2e=timing.total_ms,input_tokens=usage.prompt_tokens,"
    "output_tokens=usage.completion_tokens,cached_tokens=usage.details.cached_tokens",
    "csv": "arrival=ts:unix_ms,request_id=request_id,attempt=attempt,session=session,model=model,path=path,"
    "status=status,stream=stream,ttft=ttft_ms,e2e=total_ms,input_tokens=prompt_tokens,"
    "output_tokens=completion_tokens,cached_tokens=cached_tokens",
}
HEADER = (
    "ts,request_id,attempt,session,model,path,status,stream,prompt,ttft_ms,total_ms,prompt_tokens,"
    "completion_tokens,cached_tokens\n"
)


def jsonl_row(number):
    mixed = (number * SCATTER) & MASK
    at = START_US + number * GAP_US + (mixed >> 50)
    prompt, answer = 200 + (mixed >> 20) % 7000, 1 + (mixed >> 33) % 500
    return (
        f'{{"ts":{at // 1000}.{at % 1000:03},"request_id":"req-{mixed:016x}","attempt":0,'
        f'"session":"s-{(number // 8 * SCATTER & MASK) >> 44}","model":"{MODELS[mixed % 3]}",'
        f'"path":"/v1/chat/completions","status":{STATUS[mixed >> 58]},"stream":true,"prompt":"{PADDING}",'
        f'"timing":{{"ttft_ms":{50 + prompt // 9}.25,"total_ms":{400 + answer * 21}.5}},'
        f'"usage":{{"prompt_tokens":{prompt},"completion_tokens":{answer},'
        f'"details":{{"cached_tokens":{prompt // 3}}}}}}}\n'
    )


def csv_row(number):
    mixed = (number * SCATTER) & MASK
    at = START_US + number * GAP_US + (mixed >> 50)
    prompt, answer = 200 + (mixed >> 20) % 7000, 1 + (mixed >> 33) % 500
    return (
        f"{at // 1000}.{at % 1000:03},req-{mixed:016x},0,s-{(number // 8 * SCATTER & MASK) >> 44},{MODELS[mixed % 3]},"
        f'/v1/chat/completions,{STATUS[mixed >> 58]},true,"{PADDING}",{50 + prompt // 9}.25,{400 + answer * 21}.5,'
        f"{prompt},{answer},{prompt // 3}\n"
    )


def scattered(count):
    """A step that visits every number below `count` once."""
    step = int(count * 0.6180339887) | 1
    while math.gcd(step, count) != 1:
        step += 2
    return step


def numbers(order, count):
    if order == "sorted":
        yield from range(count)
        return
    window = count if order == "shuffled" else WINDOW
    for start in range(0, count, window):
        length = min(window, count - start)
        step, place = scattered(length), 0
        for _ in range(length):
            yield start + place
            place = (place + step) % length


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=float, default=5e9)
    parser.add_argument("--order", choices=("sorted", "late", "shuffled"), default="sorted")
    parser.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
    parser.add_argument("--map", action="store_true", help="print the column map and end")
    arguments = parser.parse_args()
    if arguments.map:
        print(MAPS[arguments.format])
        return
    row = jsonl_row if arguments.format == "jsonl" else csv_row
    sample = sum(len(row(number)) for number in range(0, 1_000_000, 997)) / len(range(0, 1_000_000, 997))
    count = max(1, int(arguments.bytes / sample))
    out = sys.stdout
    if arguments.format == "csv":
        out.write(HEADER)
    lines = []
    for number in numbers(arguments.order, count):
        lines.append(row(number))
        if len(lines) == 4096:
            out.write("".join(lines))
            lines.clear()
    out.write("".join(lines))


if __name__ == "__main__":
    main()
