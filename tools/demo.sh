#!/usr/bin/env bash
# The main job in a minute: installs the demo model, shows the memory plan, and answers one prompt with a
# budget that cannot hold all experts. Expects the release build (`make demo` makes it).
# DEMO_MEMORY, DEMO_CONTEXT and DEMO_PROMPT change the run.
set -euo pipefail
cd "$(dirname "$0")/.."

wader=build/release/wader
model=build/demo/demo.wader
# Room for about half of the demo model's experts at this context.
memory=${DEMO_MEMORY:-32MiB}
context=${DEMO_CONTEXT:-2048}
prompt=${DEMO_PROMPT:-Tell me a story.}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
shown() {  # prints the command as one would type it, then runs it
  local word
  printf '\033[2m$'
  for word in "$@"; do
    if [[ $word == *[!A-Za-z0-9_./:=-]* ]]; then printf " '%s'" "$word"; else printf ' %s' "$word"; fi
  done
  printf '\033[0m\n'
  "$@"
}

if "$wader" verify "$model" >/dev/null 2>&1; then
  say "1. The demo model is installed in $model already."
else
  # A finished container that does not verify is of another version or damaged; an unfinished one is resumed.
  [[ -f $model/install.json ]] || rm -rf "$model"
  say '1. Install: a released checkpoint becomes a container, its experts copied byte for byte.'
  mkdir -p "$(dirname "$model")"
  shown "$wader" install models/demo -o "$model"
fi

say "2. Plan: what $memory is spent on. The experts that do not fit are read from disk when they are needed."
shown "$wader" info "$model" --memory "$memory" --context "$context"

say '3. Chat, with everything inside that budget.'
shown "$wader" chat "$model" --prompt "$prompt" --seed 2 --reasoning low --max-tokens 160 \
  --memory "$memory" --context "$context" --stats

say 'Next'
cat <<END
  $wader chat $model    # talk to it; /stats shows hits and reads, /exit leaves
  DEMO_MEMORY=64MiB make demo                           # room for all experts: the same answer, fewer reads
  DEMO_PROMPT='Write a SQL query.' make demo            # another of its 13 kinds of text
  $wader --help                           # all commands

The demo model is small and knows nothing; it writes fluent-looking text of 13 kinds. For a real model, give
install the directory of a released checkpoint (GPT-OSS, Qwen3, Qwen3-Next, Qwen3.5 or 3.6): see README.md.
END
