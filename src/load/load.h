// Load test of an OpenAI endpoint (Weft, vLLM, llama-server): sends requests and measures times and
// rates as defined by vLLM's `bench serve`.
//
// Responses stream as server-sent events over HTTP; everything runs on the calling thread
// (libcurl), but the prompts, which another thread makes ahead. With a rate, requests start as a
// Poisson process, independent of earlier ones. Without a rate, each of `clients` clients sends its
// next request when its previous one is answered.
//
// If the endpoint accepts token ids (only /v1/completions; one request tests this), prompts are
// random token ids and have an exact length. Otherwise prompts are random words. Requests set
// ignore_eos to get answers of full length. Token counts are those of the endpoint's `usage`;
// without `usage`, each piece counts as one token. The endpoint is not trusted: lines and answers
// are limited in size, and a stalled answer fails.
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
    std::string url = "http://127.0.0.1:8080";  // "/v1/..." is appended
    std::string model, key, ca_file;
    bool chat = false;  // chat/completions; else completions
    PromptKind prompt = PromptKind::kAuto;
    int requests = 100, warmup = 1;
    int clients = 0;        // concurrent requests; 0: one, or no limit if a rate is given
    double rate = 0;        // requests per second; 0: no rate
    bool sharegpt = false;  // lengths distributed as in ShareGPT's conversations
    int64_t input_len = 256, output_len = 128;  // tokens, without sharegpt
    int64_t shared_prefix = 0;                  // tokens common to the start of all prompts
    int64_t vocab = 30'000;                     // upper bound of the prompts' token ids
    uint64_t seed = 1;
    int64_t timeout_ms = 120'000;  // a request without data for this long fails
};

// Result of one request. Times are relative to its start unless stated otherwise.
struct LoadAnswer {
    bool ok = false;
    std::string error;
    double start_s = 0, end_s = 0;  // since the load began
    double first_s = 0;             // to the first token
    std::vector<double> gaps_s;     // between consecutive pieces
    int64_t input_tokens = 0, output_tokens = 0;
};

// Statistics of a time in milliseconds.
struct Quantiles {
    double mean = 0, median = 0, p95 = 0, p99 = 0;
};

struct LoadReport {
    int64_t completed = 0, failed = 0;
    std::string first_error;  // error of the first failed request
    bool ids = false;         // prompts were token ids
    double duration_s = 0;    // from the first request to the end of the last
    int64_t input_tokens = 0, output_tokens = 0;
    double request_rate = 0, output_rate = 0, total_rate = 0;  // per second
    int most_at_once = 0;
    // Time to the first token, time per output token after the first, time between pieces, total
    // time.
    Quantiles ttft_ms, tpot_ms, itl_ms, e2el_ms;
};

// Lengths of a prompt and its answer, in tokens.
struct Lengths {
    int64_t input = 0, output = 0;
};
// Lengths of all requests; the same for the same seed. ShareGPT: log-normal with the means of
// vLLM's sample (217 input tokens, 202 output), limited to 4 to 1,024 each.
std::vector<Lengths> MakeLengths(const LoadOptions& options);

LoadReport MakeReport(const std::vector<LoadAnswer>& answers);

// The first model in the endpoint's /v1/models. Errors: kUsage (invalid URL, or the endpoint lists
// no model, so the user must name one), kIo.
Result<std::string> FirstModel(const LoadOptions& options);

// Runs the load. done: called periodically with the number of answered requests; may be empty.
// Errors: kUsage (invalid URL), kCancelled (stop was set); the first request's error if no request
// was answered.
Result<LoadReport> RunLoad(const LoadOptions& options, const std::atomic<bool>* stop,
                           const std::function<void(int done)>& done);

}  // namespace weft::load
