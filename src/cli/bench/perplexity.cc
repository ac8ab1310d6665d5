// weft perplexity: measures how well a model predicts a text.
#include <algorithm>

#include "base/file.h"
#include "cli/bench/summary.h"
#include "cli/commands.h"
#include "cli/models/model_words.h"
#include "engine/start/measure.h"

namespace weft::cli {
namespace {

constexpr const char* kPerplexityFooter =
    "The definition is llama.cpp's, so that figures compare: Weft cuts the text into chunks of\n"
    "--ctx tokens and scores the second half of each chunk.\n\n"
    "Examples:\n"
    "  weft perplexity model.gguf text.txt\n"
    "  weft perplexity model.gguf text.txt --ctx 2048 --local 2 --json";

constexpr int64_t kDefaultContext = 512, kLeastContext = 4;
// Rows per step. The logits of a step are in memory at the same time.
constexpr int64_t kMostOutputs = 256;

struct PerplexityFlags {
    CommonFlags common;
    std::string file;
};

Status RunPerplexityCommand(PerplexityFlags& flags) {
    WEFT_TRY(Resolve(flags.common));
    engine::Job& job = flags.common.job;
    WEFT_ASSIGN(ModelWords words, OpenWords(job));
    if (job.ctx == 0) job.ctx = std::min(kDefaultContext, words.hyper.context);
    if (job.ctx < kLeastContext) {
        return MakeError(ErrorCode::kUsage,
                         "--ctx {}: expected {} or more, because only the second half of a chunk "
                         "is scored",
                         job.ctx, kLeastContext);
    }
    job.max_outputs = std::min({job.chunk, job.ctx, kMostOutputs});
    WEFT_ASSIGN(const std::string text, ReadTextFile(flags.file));
    WEFT_ASSIGN(const auto runner,
                engine::StepRunner::Start(flags.common.cluster, job, std::move(words.tokenizer)));
    ProgressLine progress;
    const int64_t begin_ns = NowNs();
    WEFT_ASSIGN(
        const engine::Perplexity result,
        engine::ScoreText(*runner, text, job.ctx, [&](int64_t chunk, int64_t chunks, double value) {
            progress.Show(fmt::format("chunk {} of {}: {:.4f}", chunk, chunks, value));
        }));
    const double seconds = SecondsSince(begin_ns);
    progress.Clear();
    WEFT_ASSIGN(const auto reports, runner->Finish());
    if (flags.common.json) {
        Json json{
            {"perplexity", result.value},   {"error", result.error}, {"tokens", result.tokens},
            {"chunks", result.chunks},      {"ctx", job.ctx},        {"seconds", seconds},
            {"ranks", RanksToJson(reports)}};
        AddWire(reports, json);
        PrintJson(json);
    } else {
        PrintOut("perplexity {:.4f} +- {:.4f} ({} tokens scored in {} chunks of {}, {:.1f} s)\n",
                 result.value, result.error, result.tokens, result.chunks, job.ctx, seconds);
    }
    if (job.trace) WEFT_TRY(WriteTrace(flags.common.trace_file, reports));
    return {};
}

}  // namespace

void AddPerplexity(const Command& app, int& status) {
    auto flags = std::make_shared<PerplexityFlags>();
    const Command command =
        app.AddCommand("perplexity", "Compute the perplexity of a text", kPerplexityFooter);
    AddModel(command, flags->common.job.model, flags->common.pull);
    command.AddOption("FILE", flags->file, "Text to read").Required();
    AddClusterFlags(command, flags->common);
    AddLayoutFlags(command, flags->common);
    AddLora(command, flags->common);
    AddEngineFlags(command, flags->common);
    SetCallback(command, flags, flags->common.json, status, RunPerplexityCommand);
}

}  // namespace weft::cli
