#include "cli/flags.h"

#include "base/check.h"

namespace wader {
namespace {

constexpr uint32_t on(std::initializer_list<Command> commands) {
  uint32_t bits = 0;
  for (const Command command : commands) bits |= 1u << static_cast<int>(command);
  return bits;
}

using enum Command;
constexpr uint32_t kAll = ~0u;
constexpr uint32_t kBenchEngine = on({bench_decode, bench_prefill});
constexpr uint32_t kBench = kBenchEngine | on({bench_kernels});
constexpr uint32_t kEngine =
    on({chat, serve, generate, logits, check, trace, range}) | kBenchEngine;
constexpr uint32_t kPlan = kEngine | on({info});
constexpr uint32_t kAnswer = on({chat, generate});
constexpr uint32_t kSampling = kAnswer | on({trace});
constexpr uint32_t kPrompt = on({chat, render});
constexpr uint32_t kDate = kPrompt | on({trace});

constexpr OperandSpec kModel = {
    "MODEL",
    "a container's path, the name of an installed model, or a released checkpoint's directory, "
    "which is used in place"};

constexpr CommandSpec kCommands[] = {
    {install,
     "install",
     "turn a released checkpoint into a container",
     "Reads the checkpoint once, in bounded memory, and writes a container: weights that are "
     "quantised already as they "
     "are, byte for byte, others quantised, each expert with a checksum. Says what that cost as "
     "signal-to-noise ratios; "
     "`wader info --json` has them by matrix. Killed or stopped, it leaves an unfinished install "
     "that the same command "
     "completes. Of a model of the hub, only what is needed is fetched, and nothing that its local "
     "cache has. HF_TOKEN, HF_HOME, HF_ENDPOINT and proxies as elsewhere.",
     {{"SOURCE",
       "a local checkpoint: a directory (Hugging Face, MLX, .qpack, .gwt) or its .safetensors "
       "file; "
       "or a model of the hub: ORG/NAME"},
      {}}},
    {list,
     "list",
     "show the installed models",
     "Shows finished and unfinished installs in the models directory ($WADER_HOME, or "
     "~/.local/share/wader/models).",
     {}},
    {rm,
     "rm",
     "delete an installed model",
     "Deletes a container or an unfinished install, and nothing else: a directory that holds any "
     "other file is "
     "refused. Asks first on a terminal; without one, --yes is needed.",
     {{"NAME", "the name of an installed model, or a container's path"}, {}}},
    {info,
     "info",
     "show a model's facts and its memory plan on this machine",
     "Shows what the model is, what it takes on disk, and where every byte of memory would go. "
     "Loads nothing.",
     {kModel, {}}},
    {verify,
     "verify",
     "re-read a model and compare every checksum",
     "Exit status 1 when anything is damaged; each damaged part is named.",
     {kModel, {}}},
    {chat,
     "chat",
     "talk with a model",
     "Interactive on a terminal; with --prompt, or with text on standard input, one question and "
     "its answer.\n"
     "Ctrl-C stops the answer, at an empty prompt twice it ends the program, as Ctrl-D does. /help "
     "lists the commands "
     "of the conversation. A line that ends in a backslash continues on the next; pasted lines "
     "stay one message.",
     {kModel, {}}},
    {serve,
     "serve",
     "serve a model to programs: an API like OpenAI's",
     "Answers /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, /tokenize, "
     "/detokenize, /health and /metrics on this machine alone, several conversations at a time. "
     "docs/clients.md shows how clients are set up.\n"
     "A key is taken from --api-key-file or the environment variable WADER_API_KEY. SIGTERM lets "
     "answers in progress finish for 3 seconds.",
     {{"MODEL",
       "a container's path or the name of an installed model; needed unless one alone is "
       "installed",
       false},
      {}}},
    {stats,
     "stats",
     "watch a running server: memory, speed, reads and where its time goes",
     "Shows what the dashboard's Machine page shows, in the terminal: each second anew, until q or "
     "Ctrl-C. Rates and shares are of the last five seconds, and say so. Without a terminal, or "
     "with --once, one picture over one second. A server that goes away or loads a model is waited "
     "for; with --once that is an error.",
     {{"URL",
       "where the server is: http://HOST:PORT, or HOST:PORT; http://127.0.0.1:8080 unless given",
       false},
      {}}},
    {generate,
     "generate",
     "continue raw token ids",
     "Prints the new ids on one line, separated by spaces, with the stop id when one ended it. "
     "Sampling follows the "
     "model's generation_config.json unless flags say otherwise.",
     {kModel, {}}},
    {logits,
     "logits",
     "compute logits of raw token ids",
     "With --output, writes safetensors: logits (T, vocab) f32, router_indices (layers, T, k) i32, "
     "router_weights "
     "(layers, T, k) f32, hidden (layers + 1, T, hidden) f32, the last one after the final norm. "
     "Without it, prints "
     "the likeliest tokens after the last position.",
     {kModel, {}}},
    {tokenize,
     "tokenize",
     "text to token ids, and back",
     "Prints the ids as a JSON list. Text is taken exactly as given: a newline at the end of "
     "standard input counts. "
     "Text that spells markup is plain text unless --special is given.",
     {kModel,
      {"TEXT", "text to encode, or ids with --decode; - or nothing: standard input", false}}},
    {render,
     "render",
     "show the exact prompt that a chat becomes",
     "Reads messages in the OpenAI form, a JSON list or an object with messages (and tools), and "
     "prints JSON with the "
     "prompt's ids and its text.",
     {kModel, {}}},
    {check,
     "check",
     "compare a model with reference outputs",
     "Computes what the golden file holds and prints the largest differences: logits, hidden "
     "states, router sets, "
     "greedy continuations up to the first choice whose margin is under 1e-3, and with --nll the "
     "held-out negative "
     "log-likelihood. Exit status 1 beyond the tolerance. Exact weights are needed to pass: a "
     "container installed with "
     "--trunk bf16.",
     {kModel, {"GOLDEN", "golden.safetensors, reference outputs of the same model"}}},
    {bench_kernels,
     "bench kernels",
     "measure the arithmetic of each back end beside the machine's limits",
     "Runs each back end's products of quantised matrices (matmul), attention over a context "
     "(attend) and DeltaNet's recurrent states (delta), in the shapes of released models and in "
     "alternating rounds with reads of memory and 8-bit products in registers or tiles: GB/s of "
     "weights, "
     "keys and values or states against the memory's bandwidth, GOP/s against the 8-bit peak. "
     "Medians of the rounds; a share is that of each round against its own limit. Takes 256 MiB "
     "and each case's own memory.",
     {}},
    {bench_decode,
     "bench decode",
     "measure the speed of decoding, and where its time goes",
     "Decodes --count tokens after a prompt of random ids, in rounds with other ids each, after a "
     "warm-up that fills the slots. Figures are of the round with the median speed. floor_ratio "
     "is the time of a token over that of reading its active bytes once (trunk, chosen experts, "
     "state) at the memory's bandwidth, which is measured before each round.\n"
     "With --a and --b, two settings of engine flags take turns; the comparison is by pairs of "
     "rounds, with a sign test. They stay open side by side where both plans fit --memory; "
     "otherwise each round opens the model anew.",
     {kModel, {}}},
    {bench_prefill,
     "bench prefill",
     "measure the speed of computing a prompt, and where its time goes",
     "Computes a prompt of --count random ids from an empty state, in rounds with other ids each, "
     "after a warm-up that fills the slots. Figures are of the round with the median speed. "
     "peak_fraction is the rate of the matrices' operations (2 for each weight and token) over "
     "the 8-bit peak, which is measured before each round.\n"
     "With --a and --b as in `wader bench decode`.",
     {kModel, {}}},
    {bench_io,
     "bench io",
     "measure how fast a model's experts, or a file, can be read",
     "Reads random places of the expert files, each the size of a record, by io_uring and by "
     "threads, past the page cache and through it, in alternating rounds: with a steady number of "
     "reads in flight (--depth), and in bursts that are waited for before the next (--burst), "
     "which is how decoding reads. Shows GB/s, how long single reads take, and CPU time. Reads "
     "through "
     "the page cache meet the disk: what they are to read is dropped from it first. Takes memory "
     "for the reads in flight.",
     {{"MODEL", "a container's path, the name of an installed model, or a file"}, {}}},
    {trace,
     "trace",
     "record which experts real work uses",
     "Computes prompts, decodes up to --count tokens after each, and writes the router's choices, "
     "pass by pass as they ran: what `wader simulate` replays. Each prompt begins a new session, "
     "the sampling's seed one further. A trace holds ids of experts, no text.",
     {kModel, {}}},
    {simulate,
     "simulate",
     "replay a trace: what each cache policy would read, with how many slots",
     "Runs the program's own slot policies over a trace of `wader trace`, without reading an "
     "expert. Shown is what Belady's rule reads, which knows the future and which no policy can "
     "beat, and each policy as a multiple of it: of all passes, of decoded tokens alone, and, "
     "where the trace has prompts of 500 tokens, the hit rate of the first 16 tokens after them.",
     {{"TRACE", "a file of `wader trace`"}, {}}},
    {range,
     "range",
     "map what the experts respond to",
     "Puts two texts of each of twelve topics to the model (python, SQL, maths proofs, poetry, "
     "contracts, clinical notes, Chinese, Japanese, Russian, JSON, chat, history) and counts which "
     "experts their tokens use. An expert is credited with a topic when the first texts used it "
     "more than 24 times and its specialisation, 1 - H / ln 12 of the entropy H of its affinities, "
     "is over 0.35; the second texts tell whether that repeats. Beside it stands what chance "
     "would give. The map is written beside the model, as range.json.",
     {kModel, {}}},
};

constexpr FlagSpec kFlags[] = {
    // install
    {"--output", "PATH", "NAME.wader in the models directory", "the container to write",
     FlagGroup::command, on({install})},
    {"--experts", "FORMAT", "auto",
     "mxfp4, affine4, affine8 or bf16; auto keeps quantised ones, and is affine4 for others",
     FlagGroup::command, on({install})},
    {"--trunk", "FORMAT", "auto",
     "affine8 or bf16; auto keeps quantised matrices, and is affine8 for others",
     FlagGroup::command, on({install})},
    {"--layers", "N", "all", "keep only the first N layers, for tests and measurements",
     FlagGroup::command, on({install})},
    {"--threads", "N", "auto", "threads that quantise; the container does not depend on them",
     FlagGroup::command, on({install})},
    {"--revision", "R", "main", "commit, tag or branch of a hub source; a local one has none",
     FlagGroup::command, on({install})},
    {"--repair", "", "", "make again from SOURCE what `wader verify` finds damaged, and only that",
     FlagGroup::command, on({install})},
    {"--dry-run", "", "", "only say what would be fetched and written, from the headers alone",
     FlagGroup::command, on({install})},
    // rm
    {"--yes", "", "", "do not ask", FlagGroup::command, on({rm})},
    // chat and render
    {"--prompt", "TEXT", "", "one question; print the answer and end", FlagGroup::command,
     on({chat})},
    {"--system", "TEXT", "", "instructions to the model", FlagGroup::command, on({chat})},
    {"--messages", "FILE", "-", "JSON file with the messages; - is standard input",
     FlagGroup::command, on({render})},
    {"--reasoning", "EFFORT", "model's", "low, medium, high or off", FlagGroup::command, kPrompt},
    {"--show-reasoning", "", "", "print the reasoning too, dimmed", FlagGroup::command, on({chat})},
    {"--state", "FILE", "",
     "go on with the conversation saved there, if there is one; save it there at the end",
     FlagGroup::command, on({chat})},
    {"--date", "YYYY-MM-DD", "today", "the conversation's date; SOURCE_DATE_EPOCH is respected",
     FlagGroup::command, kDate},
    // serve
    {"--host", "ADDRESS", "127.0.0.1", "address to listen at; others than loopback need a key",
     FlagGroup::command, on({serve})},
    {"--port", "N", "8080", "port to listen at; 0 takes a free one", FlagGroup::command,
     on({serve})},
    {"--api-key-file", "FILE", "", "file with the key that clients must send as a bearer token",
     FlagGroup::command, on({serve})},
    {"--allow-host", "LIST", "", "further names by which clients may call this machine",
     FlagGroup::command, on({serve})},
    {"--allow-origin", "LIST", "", "web pages that may ask, e.g. https://app.example",
     FlagGroup::command, on({serve})},
    {"--name", "NAME", "the container's", "the model's id in the API", FlagGroup::command,
     on({serve})},
    {"--sessions", "N", "auto",
     "conversations whose state is kept and that are answered in turns; auto is what an eighth of "
     "the memory holds, up to 8",
     FlagGroup::command, on({serve})},
    {"--queue", "N", "64", "requests that may wait beside them; more get 429", FlagGroup::command,
     on({serve})},
    {"--request-timeout", "SECONDS", "none", "end an answer after this time", FlagGroup::command,
     on({serve})},
    {"--web-dir", "DIR", "", "the dashboard's pages from there, for those who work on them",
     FlagGroup::command, on({serve})},
    {"--quiet", "", "", "no line for each request on standard error", FlagGroup::command,
     on({serve})},
    // stats
    {"--api-key-file", "FILE", "$WADER_API_KEY", "file with the server's key, where it has one",
     FlagGroup::command, on({stats})},
    {"--once", "", "", "show it once and end", FlagGroup::command, on({stats})},
    // trace
    {"--output", "FILE", "", "the trace to write", FlagGroup::command, on({trace})},
    {"--prompt", "TEXT", "", "one question, in the model's chat format", FlagGroup::command,
     on({trace})},
    {"--prompts", "FILE", "", "questions, one a line", FlagGroup::command, on({trace})},
    {"--messages", "FILE", "", "a chat as `wader render` reads it, or a list of them",
     FlagGroup::command, on({trace})},
    {"--tokens", "IDS", "", "token ids: 1,2,3, or @FILE, or - for standard input",
     FlagGroup::command, on({trace})},
    {"--random", "N", "", "N random token ids", FlagGroup::command, on({trace})},
    {"--repeat", "N", "1", "so many prompts of random ids", FlagGroup::command, on({trace})},
    {"--count", "N", "128", "tokens decoded after each prompt at most", FlagGroup::command,
     on({trace})},
    // range
    {"--output", "FILE", "range.json beside the model", "the map to write", FlagGroup::command,
     on({range})},
    // simulate
    {"--slots", "LIST", "12.5%,25%,37.5%,50%,75%", "slot counts, or shares of all experts",
     FlagGroup::command, on({simulate})},
    {"--policies", "LIST", "all", "blend, lru, lfu, lfu-aged, tinylfu, layer-budget",
     FlagGroup::command, on({simulate})},
    {"--warm-up", "N", "0", "tokens at the beginning that fill the slots and are not counted",
     FlagGroup::command, on({simulate})},
    {"--learn", "TRACE", "", "begin with the usage that a run over this trace would have left",
     FlagGroup::command, on({simulate})},
    {"--svg", "FILE", "", "draw bytes a token by slots, one line a policy", FlagGroup::command,
     on({simulate})},
    // raw ids
    {"--tokens", "IDS", "", "token ids: 1,2,3, or @FILE, or - for standard input",
     FlagGroup::command, on({generate, logits})},
    {"--count", "N", "", "how many tokens to generate at most", FlagGroup::command, on({generate})},
    {"--stop", "IDS", "none", "token ids that end the generation", FlagGroup::command,
     on({generate})},
    {"--top", "K", "10", "how many tokens to print", FlagGroup::command, on({logits})},
    {"--output", "FILE", "", "write everything to a safetensors file", FlagGroup::command,
     on({logits})},
    {"--special", "", "", "encode: let markup parse; decode: spell special tokens out",
     FlagGroup::command, on({tokenize})},
    {"--decode", "", "", "ids to text", FlagGroup::command, on({tokenize})},
    // check
    {"--tolerance", "X", "0.002", "largest difference of a logit", FlagGroup::command, on({check})},
    {"--nll", "FILE", "", "golden.json with held-out texts or sequences", FlagGroup::command,
     on({check})},
    {"--nll-tolerance", "X", "0.002", "largest relative difference of a likelihood",
     FlagGroup::command, on({check})},
    // bench
    {"--count", "N", "64", "tokens decoded in a round", FlagGroup::command, on({bench_decode})},
    {"--count", "N", "512", "tokens of the prompt", FlagGroup::command, on({bench_prefill})},
    {"--prompt-tokens", "N", "32", "tokens of the prompt before them", FlagGroup::command,
     on({bench_decode})},
    {"--kernels", "NAME", "all", "only this back end", FlagGroup::command, on({bench_kernels})},
    {"--threads", "N", "auto", "compute threads; auto respects affinity and cgroup quota",
     FlagGroup::command, on({bench_kernels})},
    {"--op", "NAME", "all", "matmul, attend or delta", FlagGroup::command, on({bench_kernels})},
    {"--format", "FORMAT", "all", "of the weights: mxfp4, affine4, affine8, affine4-g32, bf16, …",
     FlagGroup::command, on({bench_kernels})},
    {"--shape", "RxC", "released models'",
     "matmul: rows and columns; attend: positions and width of a head; delta: value heads and "
     "width",
     FlagGroup::command, on({bench_kernels})},
    {"--tokens", "N", "1, 16, 128", "tokens that it takes at once", FlagGroup::command,
     on({bench_kernels})},
    {"--matrices", "N", "1", "matmul: weights in one pass over the threads, as a token's experts",
     FlagGroup::command, on({bench_kernels})},
    {"--rounds", "N", "9", "rounds of each case", FlagGroup::command, on({bench_kernels})},
    {"--rounds", "N", "3, or 9 of each setting", "measured rounds", FlagGroup::command,
     kBenchEngine},
    {"--seed", "N", "1", "of the token ids", FlagGroup::command, kBenchEngine},
    {"--size", "LIST", "the model's records; 4 MiB of a file",
     "bytes of a read, whole blocks of 4 KiB: 1MiB,13MB", FlagGroup::command, on({bench_io})},
    {"--depth", "LIST", "1,2,4,8", "reads in flight; none leaves these out", FlagGroup::command,
     on({bench_io})},
    {"--burst", "LIST", "1,2,3,4,5,6,7,8", "reads of a burst; none leaves these out",
     FlagGroup::command, on({bench_io})},
    {"--engine", "NAME", "all", "uring or threads", FlagGroup::command, on({bench_io})},
    {"--direct", "MODE", "all", "on: past the page cache; off: through it", FlagGroup::command,
     on({bench_io})},
    {"--rounds", "N", "5", "rounds of each setting", FlagGroup::command, on({bench_io})},
    {"--seed", "N", "1", "of the places", FlagGroup::command, on({bench_io})},
    {"--temperature", "T", "0",
     "over 0, sample: greedy text of random weights repeats itself, and so its experts",
     FlagGroup::command, on({bench_decode})},
    {"--a", "FLAGS", "", "setting A: flags in quotes, \"--kernels avx2\", over those given beside",
     FlagGroup::command, kBench},
    {"--b", "FLAGS", "", "setting B, which is compared with A", FlagGroup::command, kBench},
    {"--stats", "", "", "end with one line of figures on standard error", FlagGroup::command,
     on({chat, generate})},

    {"--temperature", "T", "model's", "0 always takes the likeliest token", FlagGroup::sampling,
     kSampling},
    {"--top-k", "K", "model's", "keep the K likeliest tokens; 0 keeps all", FlagGroup::sampling,
     kSampling},
    {"--top-p", "P", "model's", "keep the likeliest tokens that hold P of the probability",
     FlagGroup::sampling, kSampling},
    {"--min-p", "P", "model's", "drop tokens less likely than P times the likeliest",
     FlagGroup::sampling, kSampling},
    {"--repetition-penalty", "X", "model's",
     "over 1: tokens already in prompt or output become less likely", FlagGroup::sampling,
     kSampling},
    {"--presence-penalty", "X", "0", "subtracted from tokens already in the output",
     FlagGroup::sampling, kSampling},
    {"--frequency-penalty", "X", "0", "the same, for each time they occurred", FlagGroup::sampling,
     kSampling},
    {"--seed", "N", "random", "the same seed and prompt give the same text", FlagGroup::sampling,
     kSampling},
    {"--greedy", "", "", "the same as --temperature 0", FlagGroup::sampling, kSampling},
    {"--max-tokens", "N", "to the context's end", "end an answer after N tokens",
     FlagGroup::sampling, kAnswer},

    {"--context", "N", "auto", "tokens of prompt and answer together", FlagGroup::engine, kPlan},
    {"--memory", "SIZE", "auto",
     "bound of the whole process, e.g. 4GiB; auto is what the machine has left", FlagGroup::engine,
     kPlan},
    {"--governor", "MODE", "on",
     "on or off: hold fewer experts while the machine is short of memory, more again when it is "
     "not",
     FlagGroup::engine, kPlan},
    {"--slots", "N", "auto", "experts held in memory; auto is what fits the budget",
     FlagGroup::engine, kPlan},
    {"--threads", "N", "auto", "compute threads; auto respects affinity and cgroup quota",
     FlagGroup::engine, kPlan},
    {"--chunk", "N", "auto", "prompt tokens computed in one pass", FlagGroup::engine, kPlan},
    {"--cache-policy", "NAME", "blend",
     "which expert gives up its slot: blend, lru, lfu, lfu-aged, tinylfu, layer-budget",
     FlagGroup::engine, kPlan},
    {"--usage", "MODE", "on",
     "on or off: remember beside the model which experts are used, and begin with that",
     FlagGroup::engine, kAnswer | on({serve})},
    {"--lookahead", "MODE", "auto",
     "on, off or auto: read experts that the next layer will probably choose; auto while it pays",
     FlagGroup::engine, kPlan},
    {"--io", "NAME", "auto",
     "how experts are read: uring, threads, or auto, which measures at a model's first use",
     FlagGroup::engine, kPlan},
    {"--direct", "MODE", "auto",
     "on, off or auto: read past the page cache; auto is part of the same measurement",
     FlagGroup::engine, kPlan},
    {"--kernels", "NAME", "auto",
     "instruction set of the arithmetic; ref is the reference, and what check takes",
     FlagGroup::engine, kPlan},

    {"--mmap", "", "",
     "experts from memory-mapped files, as a measure: nothing is verified, and what is mapped is "
     "beyond --memory",
     FlagGroup::command, kBenchEngine},
    {"--disk-rate", "SIZE", "",
     "info: predict speeds for a disk that reads so many bytes a second, e.g. 2GiB; bench: read "
     "through a model of such a disk",
     FlagGroup::command, on({info}) | kBenchEngine},

    {"--json", "", "", "print the server's figures as JSON, a line each second", FlagGroup::general,
     on({stats})},
    {"--json", "", "", "print facts as JSON", FlagGroup::general,
     on({install, list, info, verify, chat, generate, logits, check, bench_io, trace, simulate,
         range}) |
         kBench},
    {"--help", "", "", "show this help", FlagGroup::general, kAll},
};

}  // namespace

std::span<const CommandSpec> command_specs() {
  return kCommands;
}
std::span<const FlagSpec> flag_specs() {
  return kFlags;
}

const CommandSpec& spec_of(Command command) {
  for (const CommandSpec& spec : kCommands) {
    if (spec.id == command) return spec;
  }
  UNREACHABLE("no such case");
}

const CommandSpec* find_command(std::string_view name) {
  for (const CommandSpec& spec : kCommands) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::string commands_of_group(std::string_view group) {
  std::string names;
  for (const CommandSpec& spec : kCommands) {
    const size_t space = spec.name.find(' ');
    if (space == spec.name.npos || spec.name.substr(0, space) != group) continue;
    names += names.empty() ? "" : ", ";
    names += spec.name.substr(space + 1);
  }
  return names;
}

std::string_view group_title(FlagGroup group) {
  switch (group) {
    case FlagGroup::command:
      return "Flags";
    case FlagGroup::sampling:
      return "Sampling";
    case FlagGroup::engine:
      return "Engine";
    case FlagGroup::general:
      return "General";
  }
  UNREACHABLE("no such case");
}

}  // namespace wader
