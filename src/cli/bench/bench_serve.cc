// weft bench serve: sends a load of requests to an OpenAI endpoint and reports its latency and
// speed.
#include "base/file.h"
#include "cli/commands.h"
#include "load/load.h"

namespace weft::cli {
namespace {

constexpr const char* kBenchServeFooter =
    "The definitions are those of vLLM's 'bench serve': TTFT is the time to the first token, TPOT\n"
    "the time per token after it, ITL the time between two stream events, and E2EL the time of a\n"
    "whole request. The endpoint's usage gives the token counts.\n\n"
    "Examples:\n"
    "  weft bench serve --url http://127.0.0.1:8080 --clients 8 --requests 100\n"
    "  weft bench serve --model m --rate 4 --mix sharegpt --seed 3 --requests 200 --json\n"
    "  weft bench serve --model m --clients 16 --shared-prefix 200 --input-len 256 --output-len 64";

struct ServeLoadFlags {
    load::LoadOptions load;
    std::string mix, api = "completions", prompt = "auto", key_file;
    double timeout_s = 120;
    bool json = false;
};

Json LoadJson(const load::Quantiles& q) {
    return {{"mean", q.mean}, {"median", q.median}, {"p95", q.p95}, {"p99", q.p99}};
}

Json LoadJson(const ServeLoadFlags& flags, const load::LoadReport& r) {
    return {{"url", flags.load.url},
            {"model", flags.load.model},
            {"api", flags.api},
            {"prompts", r.ids ? "ids" : "words"},
            {"clients", flags.load.clients},
            {"rate", flags.load.rate},
            {"completed", r.completed},
            {"failed", r.failed},
            {"first_error", r.first_error},
            {"duration_s", r.duration_s},
            {"total_input_tokens", r.input_tokens},
            {"total_output_tokens", r.output_tokens},
            {"request_throughput", r.request_rate},
            {"output_throughput", r.output_rate},
            {"total_token_throughput", r.total_rate},
            {"max_concurrent_requests", r.most_at_once},
            {"ttft_ms", LoadJson(r.ttft_ms)},
            {"tpot_ms", LoadJson(r.tpot_ms)},
            {"itl_ms", LoadJson(r.itl_ms)},
            {"e2el_ms", LoadJson(r.e2el_ms)}};
}

void Print(const load::LoadReport& r) {
    PrintOut("{:<40}{:>10}\n", "Successful requests", r.completed);
    if (r.failed > 0) PrintOut("{:<40}{:>10}  {}\n", "Failed requests", r.failed, r.first_error);
    PrintOut("{:<40}{:>10}\n", "Maximum concurrent requests", r.most_at_once);
    PrintOut("{:<40}{:>10.2f}\n", "Duration (s)", r.duration_s);
    PrintOut("{:<40}{:>10}\n", "Total input tokens", r.input_tokens);
    PrintOut("{:<40}{:>10}\n", "Total generated tokens", r.output_tokens);
    PrintOut("{:<40}{:>10.2f}\n", "Request throughput (req/s)", r.request_rate);
    PrintOut("{:<40}{:>10.2f}\n", "Output token throughput (tok/s)", r.output_rate);
    PrintOut("{:<40}{:>10.2f}\n", "Total token throughput (tok/s)", r.total_rate);
    PrintOut("\n{:<28}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "median", "P95", "P99");
    const auto row = [](const char* name, const load::Quantiles& q) {
        PrintOut("{:<28}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, q.mean, q.median, q.p95,
                 q.p99);
    };
    row("TTFT (first token)", r.ttft_ms);
    row("TPOT (per token after it)", r.tpot_ms);
    row("ITL (between stream events)", r.itl_ms);
    row("E2EL (whole request)", r.e2el_ms);
}

Result<std::string> ApiKeyOfFile(const ServeLoadFlags& flags) {
    if (!flags.load.key.empty()) {
        return MakeError(ErrorCode::kUsage, "--key and --key-file exclude each other");
    }
    constexpr uint64_t kMostKeyBytes = 4096;
    WEFT_ASSIGN(std::string key, ReadTextStream(flags.key_file, kMostKeyBytes));
    const size_t first = key.find_first_not_of(" \t\r\n");
    if (first == key.npos) {
        return MakeError(ErrorCode::kUsage, "--key-file {}: the file is empty", flags.key_file);
    }
    return key.substr(first, key.find_first_of(" \t\r\n", first) - first);
}

Status RunBenchServeCommand(ServeLoadFlags& flags) {
    load::LoadOptions& load = flags.load;
    load.chat = flags.api == "chat";
    load.sharegpt = flags.mix == "sharegpt";
    load.prompt = flags.prompt == "ids"     ? load::PromptKind::kIds
                  : flags.prompt == "words" ? load::PromptKind::kWords
                                            : load::PromptKind::kAuto;
    if (load.chat && flags.prompt == "ids") {
        return MakeError(ErrorCode::kUsage,
                         "--prompt ids: the chat API takes words only; use --api completions");
    }
    if (!flags.key_file.empty()) {
        WEFT_ASSIGN(load.key, ApiKeyOfFile(flags));
    }
    load.timeout_ms = static_cast<int64_t>(flags.timeout_s * 1000);
    if (load.model.empty()) {
        WEFT_ASSIGN(load.model, load::FirstModel(load));
    }
    ProgressLine line;
    WEFT_ASSIGN(const load::LoadReport report,
                load::RunLoad(load, CatchInterrupts(), [&](int done) {
                    line.Show(fmt::format("{} of {} requests", done, load.requests));
                }));
    line.Clear();
    if (flags.json) {
        PrintJson(LoadJson(flags, report));
    } else {
        Print(report);
    }
    if (report.failed == 0) return {};
    return MakeError(ErrorCode::kIo, "{} of {} requests failed; first error: {}", report.failed,
                     report.completed + report.failed, report.first_error);
}

void AddLoadFlags(const Command& command, ServeLoadFlags& flags) {
    load::LoadOptions& load = flags.load;
    constexpr int kMostTokens = 1 << 24;
    command.AddOption("--url", load.url, "URL of the endpoint (http://127.0.0.1:8080)");
    command.AddOption(
        "--model", load.model,
        "Model name in the requests (default: the first model that the endpoint lists)");
    command.AddChoice("--api", flags.api, {"completions", "chat"},
                      "API to call: completions (default) or chat");
    command.AddNumber("--requests", load.requests, 1, 1'000'000, "Number of requests (100)");
    command.AddNumber("--clients", load.clients, 1, 10'000,
                      "Maximum concurrent requests (1; with --rate: no limit)");
    command.AddNumber(
        "--rate", load.rate, 1e-3, 1e5,
        "Mean requests per second, as a Poisson process (default: send as fast as answers come)");
    command.AddNumber("--input-len", load.input_len, 1, kMostTokens,
                      "Prompt tokens per request (256)");
    command.AddNumber("--output-len", load.output_len, 1, kMostTokens,
                      "Generated tokens per request (128)");
    command.AddChoice(
        "--mix", flags.mix, {"sharegpt"},
        "Distribution of prompt and answer lengths: sharegpt varies them as ShareGPT does");
    command.AddNumber("--shared-prefix", load.shared_prefix, 0, 1 << 24,
                      "Leading tokens that all prompts share (0)");
    command.AddChoice(
        "--prompt", flags.prompt, {"auto", "ids", "words"},
        "Prompt content: ids (random tokens), words, or auto: ids if the endpoint takes them");
    command.AddNumber("--vocab", load.vocab, 2, 1 << 24,
                      "Exclusive upper bound of prompt token ids (30000)");
    command.AddOption("--seed", load.seed, "Seed of prompts, lengths and arrival times (1)");
    command.AddNumber("--warmup", load.warmup, 0, 10'000,
                      "Warm-up requests before the measurement (1)");
    command.AddOption("--key-file", flags.key_file, "Read the API key from this file");
    command.AddOption(
        "--key", load.key,
        "API key, sent as a bearer token (other users can read a command line: prefer --key-file)");
    command.AddOption("--cacert", load.ca_file, "CA certificates to trust instead of the system's")
        .ExistingFile();
    command.AddNumber("--timeout", flags.timeout_s, 1.0, 86400.0,
                      "Fail a request after this many seconds of silence (120)");
}

}  // namespace

void AddBenchServe(const Command& app, int& status) {
    auto flags = std::make_shared<ServeLoadFlags>();
    const Command command = app.AddCommand(
        "bench-serve", "Put a load of requests on an OpenAI endpoint ('weft bench serve')",
        kBenchServeFooter);
    AddLoadFlags(command, *flags);
    SetJsonCallback(command, flags, status, RunBenchServeCommand);
}

}  // namespace weft::cli
