// A load of requests on an OpenAI endpoint (Weft's, vLLM's, llama-server's), and what it answers
// with: times and rates as vLLM's `bench serve` defines them.
//
// Requests stream (server-sent events) over HTTP, all on the calling thread (libcurl). With a rate
// they start at times of a Poisson process, whether or not earlier ones are done; without one, each
// of `clients` sends its next request when its last is answered.
//
// A prompt is made of random token ids, so that its length is exact, where the endpoint takes them
// (completions; one request finds out); else of random words. Answers are asked to be of full
// length (ignore_eos). Tokens are counted by the endpoint's `usage`; an answer without counts a
// token a piece.
// What the endpoint sends is hostile: lines and answers are bounded, and one that stalls is ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::load {

enum class PromptKind { kAuto, kIds, kWords };

struct LoadOptions {
    std::string url = "http://127.0.0.1:8080";  // "/v1/..." is added
    std::string model, key, ca_file;
    bool chat = false;  // chat/completions; else completions
    PromptKind prompt = PromptKind::kAuto;
    int requests = 100, warmup = 1;
    int clients = 0;        // requests at once; 0: 1, or with a rate as many as start
    double rate = 0;        // requests a second; 0: none
    bool sharegpt = false;  // lengths that vary as those of ShareGPT's conversations
    int64_t input_len = 256, output_len = 128;  // tokens, where they don't
    int64_t shared_prefix = 0;                  // first tokens that all prompts have in common
    int64_t vocab = 30'000;                     // ids of prompts are below this one
    uint64_t seed = 1;
    int64_t timeout_ms = 120'000;  // a request in which nothing comes for so long has failed
};

// One request: its times count from when it was sent.
struct LoadAnswer {
    bool ok = false;
    std::string error;
    double start_s = 0, end_s = 0;  // since the load began
    double first_s = 0;             // to the first token
    std::vector<double> gaps_s;     // between one piece and the next
    int64_t input_tokens = 0, output_tokens = 0;
};

// Mean, median and tails of a time in milliseconds.
struct Quantiles {
    double mean = 0, median = 0, p95 = 0, p99 = 0;
};

struct LoadReport {
    int64_t completed = 0, failed = 0;
    std::string first_error;  // of those that failed
    bool ids = false;         // prompts were token ids
    double duration_s = 0;    // from the first request to the end of the last
    int64_t input_tokens = 0, output_tokens = 0;
    double request_rate = 0, output_rate = 0, total_rate = 0;  // a second
    int most_at_once = 0;
    // Time to first token; per output token after it; between pieces; of the whole request.
    Quantiles ttft_ms, tpot_ms, itl_ms, e2el_ms;
};

// One piece of a prompt's length and an answer's.
struct Lengths {
    int64_t input = 0, output = 0;
};
// Of every request, the same for the same seed. ShareGPT: log-normal, with the means that vLLM's
// sample of it has (217 tokens in, 202 out), 4 to 1,024 each.
std::vector<Lengths> MakeLengths(const LoadOptions& options);

LoadReport MakeReport(const std::vector<LoadAnswer>& answers);

// The first model that the endpoint's /v1/models lists. Errors: kUsage (a URL that is none, or an
// endpoint that lists none: it has to be named), kIo.
Result<std::string> FirstModel(const LoadOptions& options);

// done: called now and then with how many requests are answered; may be empty.
// Errors: kUsage (a URL that is none), kCancelled (stop was set); and the error of the first
// request where not a single one was answered.
Result<LoadReport> RunLoad(const LoadOptions& options, const std::atomic<bool>* stop,
                           const std::function<void(int done)>& done);

}  // namespace weft::load
