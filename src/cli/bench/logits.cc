// weft logits: the logits of a model for given tokens, to compare with other programs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <numeric>

#include "base/file.h"
#include "base/printable.h"
#include "cli/bench/summary.h"
#include "cli/command_line/output_path.h"
#include "cli/commands.h"
#include "cli/models/model_words.h"
#include "engine/start/measure.h"

namespace weft::cli {
namespace {

constexpr const char* kLogitsFooter =
    "Examples:\n"
    "  weft logits model.gguf --tokens 1,2,3\n"
    "  weft logits model.gguf --tokens 1,2,3 --all --npy logits.npy --reference\n"
    "  weft logits model.gguf --tokens 1,2,3 --json --local 2";

constexpr size_t kMostShown = 10;
// Rows of logits per step with --all: 64 rows of 128 Ki tokens are 32 MiB.
constexpr int64_t kMostRows = 64;

// Up to the shape: the header has 128 bytes, 118 of them after the magic text, version and length.
constexpr std::string_view kNpyBegin(
    "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (", 61);
constexpr std::string_view kNpyMagic = kNpyBegin.substr(0, 8);

struct LogitsFlags {
    CommonFlags common;
    std::vector<int32_t> tokens;
    bool all = false;
    std::string npy;
};

// Writes NumPy's format .npy, version 1.0 (numpy.lib.format): float32 in C order, [rows, cols].
Status WriteNpy(const std::string& path, std::span<const float> values, int64_t rows,
                int64_t cols) {
    static_assert(std::endian::native == std::endian::little);
    WEFT_CHECK(static_cast<int64_t>(values.size()) == rows * cols);
    constexpr size_t kHead = 10;  // magic, version, length of the dictionary
    std::string dictionary =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
    while ((kHead + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
    dictionary += '\n';
    std::string head(kNpyMagic);
    head += static_cast<char>(dictionary.size() & 0xff);
    head += static_cast<char>(dictionary.size() >> 8);
    head += dictionary;
    WEFT_CHECK(head.starts_with(kNpyBegin));
    head.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return WriteFile(path, std::as_bytes(std::span(head)));
}

std::vector<size_t> BestIds(std::span<const float> logits) {
    std::vector<size_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), size_t{0});
    const size_t count = std::min(kMostShown, ids.size());
    std::partial_sort(
        ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
        [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    ids.resize(count);
    return ids;
}

Json RowsToJson(std::span<const float> logits, size_t vocab) {
    Json rows = Json::array();
    for (size_t at = 0; at < logits.size(); at += vocab) {
        const auto row = logits.subspan(at, vocab);
        rows.push_back(std::vector<float>(row.begin(), row.end()));
    }
    return rows;
}

Status PrintLogits(const LogitsFlags& flags, std::span<const float> logits,
                   const tokenizer::Tokenizer& tokenizer,
                   const std::vector<engine::RankReport>& reports) {
    const size_t rows = flags.all ? flags.tokens.size() : 1;
    const size_t vocab = logits.size() / rows;
    if (!flags.npy.empty()) {
        WEFT_TRY(
            WriteNpy(flags.npy, logits, static_cast<int64_t>(rows), static_cast<int64_t>(vocab)));
    }
    const auto last = logits.last(vocab);
    if (flags.common.json) {
        Json top = Json::array();
        for (size_t id : BestIds(last)) {
            top.push_back({{"id", id},
                           {"piece", tokenizer.Piece(static_cast<int32_t>(id))},
                           {"logit", last[id]}});
        }
        Json json = {{"tokens", flags.tokens}, {"shape", {rows, vocab}}, {"top", top}};
        if (flags.npy.empty()) {
            json["logits"] = RowsToJson(logits, vocab);
        } else {
            json["npy"] = flags.npy;
        }
        AddWire(reports, json);
        PrintJson(json);
        return {};
    }
    if (!flags.npy.empty()) {
        PrintOut("{}: float32 [{}, {}]\n", flags.npy, rows, vocab);
        return {};
    }
    PrintOut("{:>8} {:>12}  piece\n", "id", "logit");
    for (size_t id : BestIds(last)) {
        const Json piece = tokenizer.Piece(static_cast<int32_t>(id));
        PrintOut("{:>8} {:>12.5f}  {}\n", id, last[id],
                 Printable(piece.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    return {};
}

Status RunLogitsCommand(LogitsFlags& flags) {
    WEFT_TRY(Resolve(flags.common));
    engine::Job& job = flags.common.job;
    WEFT_TRY(
        CheckOutput({"--npy", flags.npy, kNpyBegin}, std::array{job.model, flags.common.lora}));
    const auto count = static_cast<int64_t>(flags.tokens.size());
    WEFT_ASSIGN(ModelWords words, OpenWords(job));
    WEFT_ASSIGN(job.ctx, ContextFor(words.hyper, count, 0, job));
    if (flags.all) job.max_outputs = std::min({count, job.chunk, kMostRows});
    WEFT_ASSIGN(const auto runner,
                engine::StepRunner::Start(flags.common.cluster, job, std::move(words.tokenizer)));
    WEFT_ASSIGN(const std::vector<float> logits, engine::Logits(*runner, flags.tokens, flags.all));
    WEFT_ASSIGN(const auto reports, runner->Finish());
    WEFT_TRY(PrintLogits(flags, logits, runner->tokenizer(), reports));
    if (job.trace) WEFT_TRY(WriteTrace(flags.common.trace_file, reports));
    return {};
}

}  // namespace

void AddLogits(const Command& app, int& status) {
    auto flags = std::make_shared<LogitsFlags>();
    const Command logits =
        app.AddCommand("logits", "Print the logits after given tokens", kLogitsFooter);
    AddModel(logits, flags->common.job.model, flags->common.pull);
    logits.AddOption("--tokens", flags->tokens, "Token ids, as 1,2,3")
        .Commas()
        .OneEach()
        .Required();
    logits.AddFlag("--all", flags->all,
                   "Logits after each token, [T, V], instead of after the last token, [1, V]");
    logits.AddOption("--npy", flags->npy, "Write the logits to this .npy file (float32)");
    AddClusterFlags(logits, flags->common);
    AddLayoutFlags(logits, flags->common);
    AddLora(logits, flags->common);
    AddEngineFlags(logits, flags->common);
    SetCallback(logits, flags, flags->common.json, status, RunLogitsCommand);
}

}  // namespace weft::cli
