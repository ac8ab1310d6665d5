#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/log.h"
#include "engine/draft_model.h"
#include "engine/lookup.h"
#include "engine/net.h"
#include "model_files/read_tokenizer.h"

namespace weft::engine {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kShutdownMs = 5000;
// A prefill step of fewer rows would be bound by reading the weights.
constexpr size_t kLeastChunk = 64;
constexpr size_t kChunksPerStage = 4;

// -log softmax(logits)[target], in double.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
    const double best = *std::ranges::max_element(logits);
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
    return std::log(sum) - (static_cast<double>(logits[static_cast<size_t>(target)]) - best);
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab) {
    std::mt19937 random(1);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens)
        token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    return tokens;
}

// Fills in what depends on the model: the context.
Status CompleteJob(Job& job) {
    if (job.ctx > 0) return {};
    WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    job.ctx = std::min(hyper.context, kDefaultContext);
    return {};
}

// What a drafter asks of the job: rows with logits, and on rank 0 memory for a draft model, whose
// vocabulary is compared with the model's before anything is loaded.
Status CompleteDraft(const DraftOptions& draft, Job& job,
                     std::unique_ptr<tokenizer::Tokenizer>& tokenizer) {
    WEFT_TRY(CheckDraft(draft));
    if (std::min(job.chunk, job.ctx) < 2) {
        return MakeError(ErrorCode::kUsage,
                         "a draft needs steps of two rows and more; --chunk is {}, the context {}",
                         job.chunk, job.ctx);
    }
    const int64_t rows = std::min({draft.most() + 1, job.chunk, job.ctx});
    job.max_outputs = std::max(job.max_outputs, rows);
    if (draft.model.empty()) return {};
    if (tokenizer == nullptr) {
        WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
        WEFT_ASSIGN(tokenizer, model_files::LoadTokenizer(*source));
    }
    WEFT_TRY(CheckVocabulary(job.model, *tokenizer, draft.model));
    WEFT_ASSIGN(job.draft_bytes, DraftModelBytes(draft.model, job));
    return {};
}

}  // namespace

double Generation::prefill_tok_s() const {
    return prefill_s > 0 ? static_cast<double>(prompt_tokens) / prefill_s : 0;
}

double Generation::decode_tok_s() const {
    const double count = static_cast<double>(std::max<size_t>(1, tokens.size()) - 1);
    return decode_s > 0 ? count / decode_s : 0;
}

Result<std::unique_ptr<Engine>> Engine::Start(const cluster::ClusterOptions& options, Job job,
                                              std::unique_ptr<tokenizer::Tokenizer> tokenizer,
                                              const DraftOptions& draft) {
    WEFT_TRY(cluster::CheckOptions(options));
    WEFT_TRY(CheckAdapters(job));
    WEFT_TRY(CompleteJob(job));
    if (draft.on()) WEFT_TRY(CompleteDraft(draft, job, tokenizer));
    std::unique_ptr<Engine> engine(new Engine());
    WEFT_ASSIGN(engine->cluster_, cluster::Cluster::Launch(options, JobToJson(job)));
    cluster::Cluster& cluster = *engine->cluster_;
    engine->job_ = std::move(job);
    const auto fail = [&](Error error) {
        engine->finished_ = true;
        return error;
    };
    const Status opened = OpenFirstRank(engine->job_, cluster, engine->rank_, engine->recoveries_);
    if (!opened.ok()) return fail(opened.error());
    engine->tokenizer_ = std::move(tokenizer);
    if (engine->tokenizer_ == nullptr) {
        auto loaded = model_files::LoadTokenizer(engine->rank_->source());
        if (!loaded.ok()) return fail(cluster.ReportFailure(loaded.error()));
        engine->tokenizer_ = std::move(loaded).value();
    }
    engine->rank_->SetIdle(true);
    if (draft.on()) {
        const Status drafts = engine->MakeDrafter(draft, options);
        if (!drafts.ok()) return fail(cluster.ReportFailure(drafts.error()));
    }
    return engine;
}

Engine::~Engine() {
    // After an error the cluster has its verdict; otherwise the ranks are told to end.
    if (rank_ != nullptr && !finished_) [[maybe_unused]]
        auto ignored = Finish();
    rank_.reset();
}

Status Engine::MakeDrafter(const DraftOptions& draft, const cluster::ClusterOptions& options) {
    most_drafts_ = std::min({draft.most(), job_.max_outputs - 1, job_.chunk - 1});
    if (draft.lookup) {
        drafter_ = std::make_unique<Lookup>(draft.always);
        return {};
    }
    WEFT_ASSIGN(auto model, DraftModel::Open(draft, job_, *rank_, options.stop));
    drafter_ = std::move(model);
    return {};
}

Status Engine::RunStep(std::span<const int32_t> tokens, int64_t position,
                       std::span<const int32_t> output_rows) {
    if (cluster_->stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    rank_->SetIdle(false);
    step_.OfOneSequence(tokens, position, output_rows, rank_->page_tokens());
    step_.sequences[0].adapter = adapter();
    return rank_->Run(step_);
}

Status Engine::RunRows(std::span<const int32_t> tokens, int64_t position, size_t outputs) {
    wanted_rows_.resize(outputs);
    std::iota(wanted_rows_.begin(), wanted_rows_.end(),
              static_cast<int32_t>(tokens.size() - outputs));
    WEFT_TRY(RunStep(tokens, position, wanted_rows_));
    if (outputs == 0) return {};
    logits_.resize(outputs * static_cast<size_t>(rank_->hyper().vocab));
    return rank_->ReadLogits(static_cast<int64_t>(outputs), logits_);
}

// Tokens of one prefill step. With pipeline stages a prompt goes in several, so that the first
// stage works on the next chunk while the later ones have the last: S stages and C chunks take
// (C + S - 1) / (C * S) of the time of one stage after another.
size_t Engine::ChunkFor(size_t prompt_tokens) const {
    const auto chunk = static_cast<size_t>(rank_->job().chunk);
    const auto stages = static_cast<size_t>(rank_->layout().pp);
    if (stages == 1) return chunk;
    const size_t share =
        (prompt_tokens + stages * kChunksPerStage - 1) / (stages * kChunksPerStage);
    return std::min(chunk, std::max(share, kLeastChunk));
}

// All tokens in chunks; logits of the last `outputs` of them, which are in one step.
Status Engine::Prefill(std::span<const int32_t> tokens, size_t outputs) {
    cluster_->SetPhase("prefill");
    const size_t chunk = ChunkFor(tokens.size());
    const size_t head = tokens.size() - outputs;
    // With one row of logits its chunk may be a whole one, too.
    const size_t end = outputs == 1 ? tokens.size() : head;
    for (size_t at = 0; at < end; at += chunk) {
        const size_t count = std::min(chunk, end - at);
        const bool last = at + count == tokens.size();
        WEFT_TRY(RunRows(tokens.subspan(at, count), static_cast<int64_t>(at), last ? 1 : 0));
    }
    if (outputs == 1) return {};
    return RunRows(tokens.subspan(head), static_cast<int64_t>(head), outputs);
}

// Refuses what the context cannot hold and ids that the model does not have, before any step.
Status Engine::CheckTokens(std::span<const int32_t> tokens, int64_t more) const {
    if (tokens.empty()) {
        return MakeError(ErrorCode::kUsage, "the prompt has no tokens: give some text");
    }
    const int64_t room = rank_->job().ctx;
    if (static_cast<int64_t>(tokens.size()) + more > room) {
        return MakeError(ErrorCode::kUsage,
                         "the prompt has {} tokens, and {} more are needed; the context holds {}. "
                         "Raise it with --ctx, or shorten the prompt.",
                         tokens.size(), more, room);
    }
    for (int32_t token : tokens) {
        if (token >= 0 && token < rank_->hyper().vocab) continue;
        return MakeError(ErrorCode::kUsage, "token {} is not in the vocabulary (0 to {})", token,
                         rank_->hyper().vocab - 1);
    }
    return {};
}

Result<std::vector<float>> Engine::Logits(std::span<const int32_t> tokens, bool all) {
    WEFT_TRY(CheckTokens(tokens, 0));
    const auto vocab = static_cast<size_t>(rank_->hyper().vocab);
    const auto run = [&]() -> Result<std::vector<float>> {
        if (!all) {
            WEFT_TRY(Prefill(tokens, 1));
            return logits_;
        }
        std::vector<float> result(tokens.size() * vocab);
        const auto chunk = static_cast<size_t>(
            std::min(rank_->job().chunk, std::max<int64_t>(1, rank_->job().max_outputs)));
        for (size_t at = 0; at < tokens.size(); at += chunk) {
            const size_t count = std::min(chunk, tokens.size() - at);
            const auto out = std::span(result).subspan(at * vocab, count * vocab);
            WEFT_TRY(RunAll(tokens.subspan(at, count), static_cast<int64_t>(at), 0, out));
        }
        return result;
    };
    return Explain(run());
}

// Rows from `first` on give logits: [tokens.size() - first, vocab].
Status Engine::RunAll(std::span<const int32_t> tokens, int64_t position, size_t first,
                      std::span<float> out) {
    wanted_rows_.resize(tokens.size() - first);
    std::iota(wanted_rows_.begin(), wanted_rows_.end(), static_cast<int32_t>(first));
    WEFT_TRY(RunStep(tokens, position, wanted_rows_));
    return wanted_rows_.empty() ? Status()
                                : rank_->ReadLogits(static_cast<int64_t>(wanted_rows_.size()), out);
}

Result<Perplexity> Engine::ScoreText(std::string_view text, int64_t ctx, const Progress& progress) {
    const std::vector<int32_t> tokens = tokenizer_->Encode(text, {.add_special = true});
    const auto size = static_cast<int64_t>(tokens.size());
    if (ctx < 4 || ctx > rank_->job().ctx || size < 2 * ctx) {
        return MakeError(ErrorCode::kUsage,
                         "the text has {} tokens; perplexity in chunks of {} needs at least {}. "
                         "Give more text or a smaller --ctx.",
                         size, ctx, 2 * ctx);
    }
    const auto run = [&]() -> Result<Perplexity> {
        Perplexity result;
        result.chunks = size / ctx;
        double sum = 0, squares = 0;
        for (int64_t chunk = 0; chunk < result.chunks; ++chunk) {
            const auto rows = std::span(tokens).subspan(static_cast<size_t>(chunk * ctx),
                                                        static_cast<size_t>(ctx));
            WEFT_TRY(ScoreChunk(rows, sum, squares, result.tokens));
            const double n = static_cast<double>(result.tokens);
            result.value = std::exp(sum / n);
            const double variance = std::max(0.0, squares / n - (sum / n) * (sum / n));
            result.error = n > 1 ? result.value * std::sqrt(variance / (n - 1)) : 0;
            if (progress) progress(chunk + 1, result.chunks, result.value);
        }
        return result;
    };
    return Explain(run());
}

// Adds the negative log-likelihoods of the second half of one chunk.
Status Engine::ScoreChunk(std::span<const int32_t> chunk, double& sum, double& squares,
                          int64_t& scored) {
    std::vector<int32_t> tokens(chunk.begin(), chunk.end());
    if (tokenizer_->data().add_bos) tokens[0] = tokenizer_->data().bos;
    const size_t first = tokens.size() / 2;
    const auto vocab = static_cast<size_t>(rank_->hyper().vocab);
    const auto step = static_cast<size_t>(std::min(rank_->job().chunk, rank_->job().max_outputs));
    for (size_t at = 0; at < tokens.size(); at += step) {
        const size_t count = std::min(step, tokens.size() - at);
        const size_t skip = at >= first ? 0 : std::min(first - at, count);
        std::vector<float> logits((count - skip) * vocab);
        WEFT_TRY(
            RunAll(std::span(tokens).subspan(at, count), static_cast<int64_t>(at), skip, logits));
        for (size_t row = at + skip; row < at + count && row + 1 < tokens.size(); ++row) {
            const auto mine = std::span(logits).subspan((row - at - skip) * vocab, vocab);
            const double nll = NegativeLogLikelihood(mine, tokens[row + 1]);
            sum += nll;
            squares += nll * nll;
            ++scored;
        }
    }
    return {};
}

Result<double> Engine::TimePrefill(int64_t count) {
    const std::vector<int32_t> tokens = RandomTokens(count, rank_->hyper().vocab);
    WEFT_TRY(CheckTokens(tokens, 0));
    const auto run = [&]() -> Result<double> {
        const int64_t begin_ns = NowNs();
        WEFT_TRY(Prefill(tokens, 1));
        return SecondsSince(begin_ns);
    };
    return Explain(run());
}

Result<double> Engine::TimeDecode(int64_t count, int64_t depth) {
    const std::vector<int32_t> tokens = RandomTokens(count, rank_->hyper().vocab);
    WEFT_TRY(CheckTokens(tokens, depth));
    const auto run = [&]() -> Result<double> {
        const int64_t begin_ns = NowNs();
        for (int64_t i = 0; i < count; ++i) {
            WEFT_TRY(RunRows({&tokens[static_cast<size_t>(i)], 1}, depth + i, 1));
        }
        return SecondsSince(begin_ns);
    };
    return Explain(run());
}

// A step with the same number of rows of each sequence, on pages of its own, and logits after the
// last row of each.
Status Engine::RunRowsOf(int64_t seqs, int64_t each, std::span<const int32_t> tokens,
                         int64_t position) {
    if (cluster_->stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    rank_->SetIdle(false);
    step_.Clear();
    const int64_t pages = rank_->kv_pages() / seqs;
    for (int64_t s = 0; s < seqs; ++s) {
        StepData::Sequence sequence;
        sequence.adapter = adapter();
        sequence.pages.resize(static_cast<size_t>(pages));
        std::iota(sequence.pages.begin(), sequence.pages.end(), static_cast<int32_t>(s * pages));
        const auto rows = tokens.subspan(static_cast<size_t>(s * each), static_cast<size_t>(each));
        step_.Append(rows, position, std::move(sequence));
        step_.output_rows.push_back(static_cast<int32_t>(step_.tokens.size()) - 1);
    }
    return rank_->Run(step_);
}

Result<double> Engine::TimePrefills(int64_t seqs, int64_t count) {
    const std::vector<int32_t> tokens = RandomTokens(seqs * count, rank_->hyper().vocab);
    const int64_t at_once = std::clamp<int64_t>(rank_->job().step_rows() / seqs, 1, count);
    const auto run = [&]() -> Result<double> {
        const int64_t begin_ns = NowNs();
        for (int64_t at = 0; at < count; at += at_once) {
            const int64_t each = std::min(at_once, count - at);
            const auto rows = std::span(tokens).subspan(static_cast<size_t>(at * seqs),
                                                        static_cast<size_t>(each * seqs));
            WEFT_TRY(RunRowsOf(seqs, each, rows, at));
        }
        return SecondsSince(begin_ns);
    };
    return Explain(run());
}

Result<double> Engine::TimeDecodes(int64_t seqs, int64_t count, int64_t depth) {
    const std::vector<int32_t> tokens = RandomTokens(seqs, rank_->hyper().vocab);
    const auto run = [&]() -> Result<double> {
        const int64_t begin_ns = NowNs();
        for (int64_t i = 0; i < count; ++i) WEFT_TRY(RunRowsOf(seqs, 1, tokens, depth + i));
        return SecondsSince(begin_ns);
    };
    return Explain(run());
}

Result<std::vector<RankReport>> Engine::Finish() {
    finished_ = true;
    auto reports = EndJob(step_.number + 1, *cluster_, rank_);
    if (reports.ok()) return reports;
    const Error& error = reports.error();
    // Who recovers from losses has all that was asked for by now.
    if (!cluster_->recovers() || error.code != ErrorCode::kPeerLost || rank_ == nullptr) {
        return error;
    }
    Log(LogLevel::kWarning, "at the end: {}", error.message);
    return std::vector<RankReport>{rank_->Report()};
}

Status Work(cluster::Cluster& cluster) {
    const auto run = [&]() -> Status {
        if (IsNetJob(cluster.job())) return WorkNet(cluster);
        WEFT_ASSIGN(Job job, JobFromJson(cluster.job()));
        std::unique_ptr<Rank> rank;
        std::vector<Recovery> recoveries;
        Status status = OpenRank(job, cluster, rank);
        if (status.ok()) status = RunWorker(*rank);
        while (!status.ok()) {
            WEFT_TRY(Recover(job, cluster, rank, status.error(), recoveries));
            status = RunWorker(*rank);
        }
        auto reports = rank->GatherReports();
        return reports.ok() ? Status() : Status(reports.error());
    };
    if (Status status = run(); !status.ok()) return cluster.ReportFailure(status.error());
    return cluster.Shutdown(Deadline::In(kShutdownMs));
}

}  // namespace weft::engine
